"""Models of shadow.config.yaml, which tornettools writes and users edit, with clear errors."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, Field

from onionlab.tornet.model import PROGRAMS, Program
from onionlab.tornet.shadow_options import (
    EXPERIMENTAL,
    GENERAL,
    HOST_OPTION_DEFAULTS,
    RUN_OPTIONS,
    SPOILING,
)
from onionlab.tornet.shadow_units import rate_bit_per_s, time_ms
from onionlab.yamlfile.field_types import ExactText, OptionType, options_mapping
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.units import show

# tornettools uses this name. Our engine for Shadow also writes a file of this name for each run.
CONFIGURATION = "shadow.config.yaml"
MAX_BYTES = 2**24
"""The maximum size of a configuration. tornettools writes half a kilobyte per host, so this is
enough for 30,000 hosts."""
MAX_NODE_ID = 2**32 - 1
HINT = "Correct or remove these lines, or generate the network again with tornettools 2.0."


def _options(types: Mapping[str, OptionType]) -> BeforeValidator:
    return options_mapping(types, {}, SPOILING)


def _require_text(value: str) -> str:
    """Return the string. Raise ValueError for NUL or a surrogate, which no argument can contain."""
    if b"\0" in value.encode():
        raise ValueError(f"expected text, got {show(value)}")
    return value


def _split_arguments(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


def _require_program(value: str) -> str:
    if Path(value).name not in PROGRAMS:
        raise ValueError(
            f"expected the path of one of {', '.join(PROGRAMS)}, got {show(value)}: a run has no "
            "other programs"
        )
    return value


def _runs_to_end(value: object) -> bool:
    if value not in ("running", {"exited": 0}):
        raise ValueError(f"expected running, or {{exited: 0}}, got {show(value)}")
    return value == "running"


def _require_variable(value: str) -> str:
    if not value or "=" in value:
        raise ValueError(f"expected the name of an environment variable, got {show(value)}")
    if value.startswith("LD_"):
        raise ValueError(
            f"{value} refers to libraries of the machine where the network was generated: a run "
            "would not have them"
        )
    return value


def _parse_address(value: str) -> str:
    return str(ipaddress.IPv4Address(value))


ProgramText = Annotated[str, AfterValidator(_require_text)]
Time = Annotated[int, BeforeValidator(time_ms)]
Rate = Annotated[int, BeforeValidator(rate_bit_per_s)]
# A host's name is also the name of its folder, so it must have no slash and must not begin with a
# dot.
HostName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class ProcessEntry(Model):
    """One process of a host."""

    path: Annotated[ProgramText, AfterValidator(_require_program)] = key(
        description="of the executable"
    )
    args: Annotated[
        tuple[ProgramText, ...], BeforeValidator(_split_arguments), Field(strict=False)
    ] = key("", description="its arguments: a text or a list")
    environment: dict[Annotated[ProgramText, AfterValidator(_require_variable)], ProgramText] = key(
        {}, description="its environment"
    )
    # Shadow would start a process without this key immediately. But tornettools always writes the
    # key, so a missing key is treated as an error.
    start_time: Time = key(description="when it starts")
    expected_final_state: Annotated[bool, BeforeValidator(_runs_to_end)] | None = key(
        None, description="how it is when the simulation ends"
    )

    @property
    def program(self) -> Program:
        """The base name of the process's executable."""
        return cast(Program, Path(self.path).name)


class HostEntry(Model):
    """A host's entry in the configuration."""

    network_node_id: Annotated[int, Field(ge=0, le=MAX_NODE_ID)] = key(
        description="where it attaches"
    )
    ip_addr: Annotated[str, AfterValidator(_parse_address)] | None = key(
        None, description="its address"
    )
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

    # The options that a run sets itself are ignored.
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
