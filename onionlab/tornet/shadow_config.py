"""Models of shadow.config.yaml as tornettools writes it and users edit it, with clear errors."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import yaml
from pydantic import BeforeValidator, Field

from onionlab.errors import UserError
from onionlab.tornet.host_files import READABLE
from onionlab.tornet.model import PROGRAMS, Program
from onionlab.tornet.shadow_options import (
    EXPERIMENTAL,
    GENERAL,
    HOST_OPTION_DEFAULTS,
    REFUSED,
    RUN_OPTIONS,
    SPOILING,
)
from onionlab.tornet.shadow_units import rate_bit_per_s, time_ms
from onionlab.yamlfile.field_types import ExactText, OptionType, options_mapping
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.reading import as_user_error, in_order, validate_tree
from onionlab.yamlfile.tree import Node, Problem, YamlError, read_tree
from onionlab.yamlfile.units import show

# The engine that writes this file and tornettools use the same name.
CONFIGURATION = "shadow.config.yaml"
MAX_BYTES = 2**24
"""The size limit of a configuration. tornettools writes half a kilobyte per host, so this is enough
for 30,000 hosts.
"""
MAX_NODE_ID = 2**32 - 1
_REFUSED = {option: why for option, why in REFUSED.items() if option not in RUN_OPTIONS}
HINT = "Correct or remove these lines, or generate the network again with tornettools 2.0."


def _options(types: Mapping[str, OptionType]) -> BeforeValidator:
    """Return a validator of Shadow's options. Those that a run sets are accepted but ignored."""
    return options_mapping(types, _REFUSED, SPOILING)


def _is_text(value: object) -> bool:
    """Return whether a value is text without NUL and without unpaired surrogates."""
    try:
        return isinstance(value, str) and b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False


def _arguments() -> BeforeValidator:
    expected = "arguments: a text or a list of texts"

    def parse(value: object) -> tuple[str, ...]:
        try:
            words = shlex.split(value) if isinstance(value, str) else value
        except ValueError as error:
            raise ValueError(f"expected {expected}, got {show(value)}: {error}") from None
        if not isinstance(words, list | tuple) or not all(map(_is_text, words)):
            raise ValueError(f"expected {expected}, got {show(value)}")
        return tuple(words)

    return BeforeValidator(parse)


def _executable() -> BeforeValidator:
    expected = f"the path of one of {', '.join(PROGRAMS)}"

    def parse(value: object) -> str:
        if not isinstance(value, str) or Path(value).name not in PROGRAMS:
            raise ValueError(f"expected {expected}, got {show(value)}: a run has no other programs")
        return value

    return BeforeValidator(parse)


def _final_state() -> BeforeValidator:
    """The final state of a process: running until the end, or Shadow's default."""
    expected = "running, or {exited: 0}"

    def parse(value: object) -> bool:
        if value not in ("running", {"exited": 0}):
            raise ValueError(f"expected {expected}, got {show(value)}")
        return value == "running"

    return BeforeValidator(parse)


def _variable() -> BeforeValidator:
    expected = "the name of an environment variable"

    def parse(value: object) -> str:
        if not isinstance(value, str) or not _is_text(value) or not value or "=" in value:
            raise ValueError(f"expected {expected}, got {show(value)}")
        if value.startswith("LD_"):
            raise ValueError(
                f"{value} refers to libraries of the machine where the network was generated: a "
                "run "
                "would not have them"
            )
        return value

    return BeforeValidator(parse)


def _environment_value() -> BeforeValidator:
    def parse(value: object) -> str:
        if not isinstance(value, str) or not _is_text(value):
            raise ValueError(f"expected text, got {show(value)}")
        return value

    return BeforeValidator(parse)


def _address() -> BeforeValidator:
    expected = "an IPv4 address"

    def parse(value: object) -> str:
        try:
            return str(ipaddress.IPv4Address(value if isinstance(value, str) else ""))
        except ValueError:
            raise ValueError(f"expected {expected}, got {show(value)}") from None

    return BeforeValidator(parse)


Time = Annotated[int, BeforeValidator(time_ms)]
Rate = Annotated[int, BeforeValidator(rate_bit_per_s)]
# A host's folder has its name, so it must be neither a path nor hidden.
HostName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class ProcessEntry(Model):
    """One process of a host."""

    path: Annotated[str, _executable()] = key(description="of the executable")
    args: Annotated[tuple[str, ...], _arguments()] = key("", description="its arguments")
    environment: dict[Annotated[str, _variable()], Annotated[str, _environment_value()]] = key(
        {}, description="its environment"
    )
    # Without it Shadow starts a process immediately. tornettools always writes it.
    start_time: Time = key(description="when it starts")
    expected_final_state: Annotated[bool, _final_state()] | None = key(
        None, description="how it is when the simulation ends"
    )

    @property
    def program(self) -> Program:
        """The base name of its executable."""
        return cast(Program, Path(self.path).name)


class HostEntry(Model):
    """One host."""

    network_node_id: Annotated[int, Field(ge=0, le=MAX_NODE_ID)] = key(
        description="where it attaches"
    )
    ip_addr: Annotated[str, _address()] | None = key(None, description="its address")
    bandwidth_up: Rate | None = key(None, description="its link, to the network")
    bandwidth_down: Rate | None = key(None, description="its link, from the network")
    processes: tuple[ProcessEntry, ...] = key(strict=False, min_length=1, description="programs")


class GraphFile(Model):
    """The location of the graph of paths."""

    path: ExactText = key(description="of the file")
    compression: ExactText | None = key(None, description="xz, or nothing")


class GraphEntry(Model):
    """The graph of paths."""

    type: ExactText = key(description="gml")
    file: GraphFile = key(description="where it is")


class NetworkSection(Model):
    """The network's paths."""

    use_shortest_path: bool = key(True, description="along several edges")
    graph: GraphEntry = key(description="the graph of paths")


class ShadowConfig(Model):
    """The configuration of one simulation."""

    general: Annotated[dict[str, Any], _options(GENERAL | RUN_OPTIONS)] = key(
        description="the simulation"
    )
    network: NetworkSection = key(description="the network's paths")
    experimental: Annotated[dict[str, Any], _options(EXPERIMENTAL)] = key(
        {}, description="options of the simulator"
    )
    host_option_defaults: Annotated[dict[str, Any], _options(HOST_OPTION_DEFAULTS)] = key(
        {}, description="options of all hosts"
    )
    hosts: dict[HostName, HostEntry] = key(min_length=1, description="hosts, by name")


def read_shadow_config(path: Path, file: str) -> tuple[ShadowConfig, Node]:
    """Read the configuration. `file` is its name in messages.

    Returns:
        The model, and the tree with line numbers.

    Raises:
        UserError: it cannot be read or differs from the files of tornettools; the message includes
            the lines.
    """
    tree = _tree(path, file)
    content, problems = validate_tree(tree, ShadowConfig)
    if content is None:
        raise as_user_error(file, in_order(problems, [file]), HINT)
    return content, tree


def _tree(path: Path, file: str) -> Node:
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}", READABLE) from None
    if len(content) > MAX_BYTES:
        raise UserError(
            f"{file}: larger than {MAX_BYTES // 2**20} MiB: it is not a network's configuration",
            "Specify the directory that `tornettools generate` wrote (its --prefix).",
        )
    try:
        return read_tree(content.decode("utf-8-sig"), file)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problems = [Problem(file, line, "", "not text in UTF-8")]
    except YamlError as error:
        problems = error.problems
    except yaml.YAMLError:
        problems = [Problem(file, 1, "", "broken YAML")]
    raise as_user_error(file, problems, HINT)
