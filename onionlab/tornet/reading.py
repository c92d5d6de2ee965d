"""Read and check a directory that ``tornettools generate`` wrote."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.compressed import DamagedError, TooLargeError, pieces
from analysis.formats.files import HOST_TEMPLATES
from onionlab.errors import UserError
from onionlab.paths import is_file, is_folder
from onionlab.tornet.checks import Checker
from onionlab.tornet.host_files import COMPLETE, CONF, READABLE, FileError, TornetFiles, find_files
from onionlab.tornet.model import PROGRAMS, ROLES, Atlas, Origin, Tornet, content_hash
from onionlab.tornet.path_graph import PathGraph, graph_bytes, read_path_graph
from onionlab.tornet.shadow_config import CONFIGURATION, HINT, MAX_BYTES, ShadowConfig
from onionlab.tornet.shadow_options import RUN_OPTIONS
from onionlab.tornet.shadow_units import time_ms
from onionlab.yamlfile.model import as_user_error, read_model
from onionlab.yamlfile.tree import Node
from onionlab.yamlfile.units import show

GRAPH = f"{CONF}/network.gml"
"""The path, in an imported network, of the graph of the nodes to which hosts are attached."""

MAX_SHOWN = 20
MAX_ATLAS_BYTES = 2**30
"""The maximum size of a decompressed atlas: several times the size of tmodel's atlas."""
CORRECTION_HINT = (
    "Correct this in the directory and import it again. If a file is missing, truncated or from "
    f"another network: {COMPLETE[0].lower()}{COMPLETE[1:]} docs/how-to/import-networks.md lists "
    "what is rejected."
)
ATLAS_HINT = (
    "Copy the atlas again from where the network was generated, or from tmodel's data "
    "(docs/how-to/import-networks.md)."
)
_XZ_MAGIC = b"\xfd7zXZ\x00"

# Options of Shadow that are not stored as options of the network. A run sets these options itself,
# the network's model has its own field for them, or they do not affect results.
_OMITTED_OPTIONS = {
    *RUN_OPTIONS,
    *("bootstrap_end_time", "heartbeat_interval", "log_level", "parallelism"),
}

# The options of `tornettools generate` that are stored. Options that name files and programs of the
# machine where the command ran are not stored.
_GENERATE_OPTIONS = (
    *("seed", "network_scale", "process_scale", "server_scale", "load_scale"),
    *("exit_user_scale", "onion_service_user_scale"),
    *("torperf_num_exit", "torperf_num_onion_service", "torperf_scale", "events_csv", "do_trace"),
)
_LOGS = "tornettools.generate.*.log"
_CHOSEN = re.compile(rb"Chose \d+ of \d+ relays using scale factor \S")
MAX_LOG_BYTES = 2**24


@dataclass(frozen=True)
class FoundTornet:
    """A network in a directory of tornettools: its model and the source of each file to import.

    graph: the content of GRAPH, a reduced form of the directory's graph of paths. `tornet.files`
    lists GRAPH, but `files` does not, because `files` has only the files that are copied.
    generate_log: the log of `tornettools generate`, without lines that have paths of the original
    machine; None if there is no log. Runs do not depend on the log. left_out: executables, options
    and files of the directory that no run uses.
    """

    tornet: Tornet
    files: TornetFiles
    graph: bytes
    generate_log: bytes | None = None
    left_out: tuple[str, ...] = ()


def read_tornet(directory: Path) -> FoundTornet:
    """Read and check a directory that ``tornettools generate`` wrote.

    Raises:
        UserError: the directory is not such a directory, is incomplete, or contains something that
            cannot be run here. All errors in its hosts are reported together.
    """
    _require_tornet(directory)
    config_file = str(directory / CONFIGURATION)
    config, tree = read_model(
        directory / CONFIGURATION, config_file, ShadowConfig, HINT, max_bytes=MAX_BYTES
    )
    stop_ms, bootstrap_end_ms = _times(config, tree, config_file)
    files = find_files(directory)
    graph_path = _graph_path(directory, config, config_file)
    graph, graph_sha256 = _read_graph(
        graph_path, {h.network_node_id for h in config.hosts.values()}
    )
    try:
        checker = Checker(config, files, graph, stop_ms)
        problems = checker.problems()
        if problems:
            raise _refused(directory, problems)
        hosts = checker.hosts
        cut = graph_bytes(graph)
        hashes = {**files.hashes(), GRAPH: hashlib.sha256(cut).hexdigest()}
    except FileError as error:
        raise UserError(f"{directory}: {error}", CORRECTION_HINT) from None
    log = _generate_log(directory)
    tornet = Tornet(
        origin=Origin(
            directory=directory.resolve().name.encode(errors="replace").decode(),
            generate=_generate_options(log),
            atlas=Atlas(
                sha256=graph_sha256,
                nodes=graph.nodes_read,
                edges=graph.edges_read,
                nodes_kept=len(graph.nodes),
                edges_kept=len(graph.paths),
            ),
        ),
        counts=_count(ROLES, (host.role for host in hosts.values())),
        programs=_count(
            PROGRAMS, (process.program for host in hosts.values() for process in host.processes)
        ),
        stop_ms=stop_ms,
        bootstrap_end_ms=bootstrap_end_ms,
        options=_options(config),
        hosts=hosts,
        files=hashes,
    )
    tornet = tornet.model_copy(update={"content_sha256": content_hash(tornet)})
    if log is not None:
        log = b"".join(line for line in log.splitlines(keepends=True) if b"/" not in line)
    return FoundTornet(tornet, files, cut, log, _left_out(directory, config))


def _require_tornet(directory: Path) -> None:
    """Raise UserError if the directory lacks the configuration or a folder of a tornet."""
    hint = "Specify the directory that `tornettools generate` wrote (its --prefix)."
    if not is_folder(directory):
        raise UserError(f"directory {directory} not found", hint)
    if not is_file(directory / CONFIGURATION):
        raise UserError(
            f"{directory} is not a directory of tornettools 2: {CONFIGURATION} is missing", hint
        )
    for folder in (CONF, HOST_TEMPLATES):
        if not is_folder(directory / folder):
            raise UserError(f"{directory} is incomplete: {folder}/ is missing", COMPLETE)


def _times(config: ShadowConfig, tree: Node, file: str) -> tuple[int, int]:
    """Return the times at which the simulation and its bootstrap end, in ms.

    Raises UserError if a time is invalid, or if a process would not start before the end.
    """

    def read(name: str, default: object) -> int:
        try:
            return time_ms(config.general.get(name, default))
        except ValueError as error:
            raise as_user_error(file, [tree.locate(("general", name), str(error))], HINT) from None

    stop_ms, bootstrap_end_ms = read("stop_time", None), read("bootstrap_end_time", 0)
    if not bootstrap_end_ms < stop_ms:
        problem = tree.locate(("general", "stop_time"), "not after bootstrap_end_time")
        raise as_user_error(file, [problem], HINT)
    late = [
        tree.locate(
            ("hosts", name, "processes", number, "start_time"),
            "not before stop_time: Shadow rejects this",
        )
        for name, host in config.hosts.items()
        for number, process in enumerate(host.processes)
        if process.start_time >= stop_ms
    ]
    if late:
        raise as_user_error(file, late, "Start these programs earlier, or raise general.stop_time.")
    return stop_ms, bootstrap_end_ms


def _graph_path(directory: Path, config: ShadowConfig, file: str) -> Path:
    """Return the path of the file with the graph of paths.

    The configuration contains the graph's path on the machine where tornettools ran. A directory
    that was moved still has the graph in its own conf/, so this folder has precedence. Raises
    UserError if the graph is missing, or cannot be cut to the nodes with hosts.
    """
    network = config.network
    if network.graph.type != "gml":
        raise UserError(
            f"{file}: network.graph.type: expected gml, got {show(network.graph.type)}",
            "Generate the network again with tornettools 2.0, which gives it an atlas in GML.",
        )
    if network.use_shortest_path:
        raise UserError(
            f"{file}: network.use_shortest_path is not false: paths may lead through nodes without "
            "hosts, so the graph cannot be cut to the nodes in use",
            "Set use_shortest_path: false, as tornettools does: its atlas has an edge for every "
            "two nodes.",
        )
    named = Path(network.graph.file.path)
    places = [directory / CONF / named.name, directory / named]
    for place in places:
        if is_file(place):
            return place
    raise UserError(
        f"{file}: network.graph.file.path: neither {named} nor {places[0]} exists",
        f"Put the atlas into {places[0].parent}.",
    )


def _read_graph(path: Path, keep: set[int]) -> tuple[PathGraph, str]:
    """Read the graph and reduce it to the nodes `keep`. Return it with the SHA-256 of its file.

    The first bytes show whether the file is compressed: tornettools writes `compression: xz` even
    if its option --atlas names an uncompressed atlas. Raises UserError if this is not an atlas.
    """
    try:
        with path.open("rb") as stream:
            is_xz = stream.read(len(_XZ_MAGIC)) == _XZ_MAGIC
            stream.seek(0)
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            unpacked = pieces(stream, ".xz" if is_xz else "", MAX_ATLAS_BYTES)
            return read_path_graph(unpacked, str(path), keep), sha256
    except DamagedError as error:
        raise UserError(f"{path} is damaged: {error}", ATLAS_HINT) from None
    except TooLargeError as error:
        raise UserError(f"{path} is not an atlas: {error}", ATLAS_HINT) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", READABLE) from None


def _count(order: Sequence[str], found: Iterable[str]) -> dict[str, int]:
    """Count each name in ``found``. The result is in the given order."""
    counts = Counter(found)
    return {name: counts[name] for name in order if counts[name]}


def _options(config: ShadowConfig) -> dict[str, dict[str, Any]]:
    """Return Shadow's options from the configuration, by section, without _OMITTED_OPTIONS."""
    sections = {
        "general": {k: v for k, v in config.general.items() if k not in _OMITTED_OPTIONS},
        "experimental": config.experimental,
        "host_option_defaults": config.host_option_defaults,
    }
    return {name: section for name, section in sections.items() if section}


def _left_out(directory: Path, config: ShadowConfig) -> tuple[str, ...]:
    """Return the executables, options and files that are not imported: no run uses them."""
    executables = {process.path for host in config.hosts.values() for process in host.processes}
    options = _OMITTED_OPTIONS & config.general.keys() - {"bootstrap_end_time", "stop_time"}
    read = {CONFIGURATION, CONF, HOST_TEMPLATES.partition("/")[0]}
    return (
        *sorted(executables),
        *sorted(f"general.{option}" for option in options),
        *sorted(
            show(path.name)
            for path in directory.iterdir()
            if path.name not in read and not path.match(_LOGS)
        ),
    )


def _refused(directory: Path, problems: list[str]) -> UserError:
    if len(problems) == 1:
        return UserError(f"{directory}: {problems[0]}", CORRECTION_HINT)
    lines = [f"  {problem}" for problem in problems[:MAX_SHOWN]]
    if len(problems) > MAX_SHOWN:
        lines.append(f"  and {len(problems) - MAX_SHOWN} more")
    return UserError(
        "\n".join([f"{directory}: {len(problems)} things are wrong", *lines]), CORRECTION_HINT
    )


def _generate_log(directory: Path) -> bytes | None:
    """Return the log of the ``tornettools generate`` that wrote the directory, or None.

    This is the latest log of a call that chose relays. Later logs may exist: if the directory
    exists, another call of `generate` fails, but still writes a log into the directory.
    """
    for path in sorted(directory.glob(_LOGS), reverse=True):
        try:
            with path.open("rb") as stream:
                log = stream.read(MAX_LOG_BYTES)
        except OSError:
            continue
        if _CHOSEN.search(log):
            return log
    return None


def _generate_options(log: bytes | None) -> dict[str, Any]:
    """Return the options of ``tornettools generate`` from its log.

    The log contains argparse's namespace. Each option is searched for separately, because this
    namespace also contains functions and classes, which are not Python literals.
    """
    text = (log or b"").decode(errors="replace")
    namespace = re.search(r"The argument namespace is: Namespace\((.*)\)", text)
    found = {}
    for name in _GENERATE_OPTIONS:
        value = re.search(rf"\b{name}=('[^']*'|[^,)]*)", namespace[1]) if namespace else None
        if value is not None:
            found[name] = _literal(value[1])
    return found


def _literal(text: str) -> int | float | str | bool | None:
    words: dict[str, bool | None] = {"None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?(e-?[0-9]{1,2})?", text):
        return float(text)
    return text.strip("'")
