"""From a directory that ``tornettools generate`` wrote to its model, or to all that is wrong."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.compressed import DamagedError, TooLargeError, pieces
from analysis.formats.files import HOST_TEMPLATES
from onionlab.errors import UserError
from onionlab.paths import is_file, is_folder
from onionlab.tornet.checks import Checker
from onionlab.tornet.host_files import (
    COMPLETE,
    CONF,
    READABLE,
    FileError,
    TornetFiles,
    find_files,
)
from onionlab.tornet.model import Atlas, Origin, Tornet, counts_of, programs_of
from onionlab.tornet.path_graph import (
    LONGEST_LINE,
    PathGraph,
    graph_bytes,
    read_path_graph,
)
from onionlab.tornet.shadow_config import (
    CONFIGURATION,
    HINT,
    ShadowConfig,
    read_shadow_config,
)
from onionlab.tornet.shadow_options import OF_A_RUN
from onionlab.tornet.shadow_units import time_ms
from onionlab.yamlfile.reading import as_user_error
from onionlab.yamlfile.tree import Node
from onionlab.yamlfile.units import show

GRAPH = f"{CONF}/network.gml"
"""Where the cut graph is kept."""

OF_SHADOW_1 = "shadow.config.xml"
MOST_SHOWN = 20
MAX_ATLAS_BYTES = 2**30
"""Unpacked: several times as much as tmodel's atlas holds."""
CORRECT = (
    "Correct this in the directory and import it again. If a file is missing, cut short or of "
    f"another network: {COMPLETE[0].lower()}{COMPLETE[1:]} docs/how-to/import-networks.md lists "
    "what is refused."
)
ATLAS_AGAIN = (
    "Copy the atlas again from where the network was generated, or from tmodel's data "
    "(docs/how-to/import-networks.md)."
)
_XZ_MAGIC = b"\xfd7zXZ\x00"

# What a run decides itself or the network's model tells, and what shows how it comes along.
_NOT_KEPT = {
    *OF_A_RUN,
    *("bootstrap_end_time", "heartbeat_interval", "log_level", "parallelism"),
}

# Of `tornettools generate`, without the files and programs of the machine where it ran.
_GENERATE_OPTIONS = (
    *("seed", "network_scale", "process_scale", "server_scale", "load_scale"),
    *("exit_user_scale", "onion_service_user_scale"),
    *("torperf_num_exit", "torperf_num_onion_service", "torperf_scale", "events_csv", "do_trace"),
)
_LOGS = "tornettools.generate.*.log"
_CHOSEN = re.compile(rb"Chose \d+ of \d+ relays using scale factor \S")
_LARGEST_LOG_BYTES = 2**24


@dataclass(frozen=True)
class FoundTornet:
    """A network as it was found: its model, and where each file that is kept has its bytes from.

    graph: the cut graph of paths, kept as GRAPH, which is among the model's files and not here.
    generate_log: of `tornettools generate`, without the lines that name paths of the machine where
    it ran; it determines no run. None where there is none.
    left_out: executables, options and files of the directory that no run uses.
    """

    tornet: Tornet
    files: TornetFiles
    graph: bytes
    generate_log: bytes | None = None
    left_out: tuple[str, ...] = ()


def read_tornet(directory: Path) -> FoundTornet:
    """Read and check a directory that ``tornettools generate`` wrote.

    Raises:
        UserError: it is none, or not a whole one, or holds what cannot be run here; names all that
            is wrong with its hosts together.
    """
    shown = str(directory)
    _require_tornet(directory, shown)
    config_file = f"{shown}/{CONFIGURATION}"
    config, tree = read_shadow_config(directory / CONFIGURATION, config_file)
    stop_ms, bootstrap_end_ms = _times(config, tree, config_file)
    files = find_files(directory, shown)
    graph_path = _graph_path(directory, config, config_file)
    graph, graph_sha256 = _read_graph(
        graph_path, {h.network_node_id for h in config.hosts.values()}
    )
    try:
        checker = Checker(config, files, graph, stop_ms)
        problems = checker.problems()
        if problems:
            raise _refused(shown, problems)
        hosts = checker.hosts
        cut = graph_bytes(graph)
        hashes = {**files.hashes(), GRAPH: hashlib.sha256(cut).hexdigest()}
    except FileError as error:
        raise UserError(f"{shown}: {error}", CORRECT) from None
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
        counts=counts_of(hosts),
        programs=programs_of(hosts),
        stop_ms=stop_ms,
        bootstrap_end_ms=bootstrap_end_ms,
        options=_options(config),
        hosts=hosts,
        files=hashes,
    ).sealed()
    return FoundTornet(tornet, files, cut, _without_paths(log), _left_out(directory, config))


def _require_tornet(directory: Path, shown: str) -> None:
    """Raises UserError where the directory is something else."""
    if not is_folder(directory):
        raise UserError(
            f"there is no directory {shown}",
            "Name the directory that `tornettools generate` wrote (its --prefix).",
        )
    if is_file(directory / CONFIGURATION):
        for folder in (CONF, HOST_TEMPLATES):
            if not is_folder(directory / folder):
                raise UserError(f"{shown} is cut short: there is no {folder}/", COMPLETE)
        return
    if is_file(directory / OF_SHADOW_1):
        raise UserError(
            f"{shown} is for Shadow 1.x: it has {OF_SHADOW_1} and no {CONFIGURATION}",
            "Generate the network again with tornettools 2.0.",
        )
    raise UserError(
        f"{shown} is no directory of tornettools: there is no {CONFIGURATION}",
        "Name the directory that `tornettools generate` wrote (its --prefix).",
    )


def _times(config: ShadowConfig, tree: Node, file: str) -> tuple[int, int]:
    """When the simulation ends and when its bootstrap does, in ms. Raises UserError."""
    found = {}
    problems = []
    for name, default in (("stop_time", None), ("bootstrap_end_time", 0)):
        try:
            found[name] = time_ms(config.general.get(name, default))
        except ValueError as error:
            problems.append(tree.locate(("general", name), str(error)))
    if problems:
        raise as_user_error(file, problems, HINT)
    stop_ms, bootstrap_end_ms = found["stop_time"], found["bootstrap_end_time"]
    if not bootstrap_end_ms < stop_ms:
        problem = tree.locate(("general", "stop_time"), "not after bootstrap_end_time")
        raise as_user_error(file, [problem], HINT)
    late = [
        tree.locate(
            ("hosts", name, "processes", number, "start_time"),
            "not before stop_time: Shadow refuses that",
        )
        for name, host in config.hosts.items()
        for number, process in enumerate(host.processes)
        if process.start_time >= stop_ms
    ]
    if late:
        raise as_user_error(file, late, "Start these programs earlier, or raise general.stop_time.")
    return stop_ms, bootstrap_end_ms


def _graph_path(directory: Path, config: ShadowConfig, file: str) -> Path:
    """Where the graph of paths is. Raises UserError where it cannot be had, or not be cut.

    tornettools writes its path on the machine where it ran; a directory that was moved has it in
    its own conf/ still.
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
            "hosts, so that the graph cannot be cut to those in use",
            "Set use_shortest_path: false, as tornettools does: its atlas has an edge for each two "
            "nodes.",
        )
    named = Path(network.graph.file.path)
    places = [directory / CONF / named.name, directory / named]
    for place in places:
        if is_file(place):
            return place
    raise UserError(
        f"{file}: network.graph.file.path: there is no {named}, and no {places[0]}",
        f"Put the atlas into {places[0].parent}.",
    )


def _read_graph(path: Path, keep: set[int]) -> tuple[PathGraph, str]:
    """Read and cut the graph; also the SHA-256 of its file. Raises UserError.

    Whether it is compressed, its first bytes tell: tornettools writes `compression: xz` for an
    atlas that its option --atlas takes decompressed as well.
    """
    try:
        with path.open("rb") as stream:
            is_xz = stream.read(len(_XZ_MAGIC)) == _XZ_MAGIC
            stream.seek(0)
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            unpacked = pieces(stream, ".xz" if is_xz else "", MAX_ATLAS_BYTES)
            return read_path_graph(_lines(unpacked), str(path), keep), sha256
    except DamagedError as error:
        raise UserError(f"{path} is damaged: {error}", ATLAS_AGAIN) from None
    except TooLargeError as error:
        raise UserError(f"{path} is not an atlas: {error}", ATLAS_AGAIN) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", READABLE) from None


def _lines(unpacked: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines; stop within one that is longer than LONGEST_LINE."""
    rest = b""
    for piece in unpacked:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > LONGEST_LINE:
            break
    if rest:
        yield rest


def _options(config: ShadowConfig) -> dict[str, dict[str, Any]]:
    """What the configuration tells Shadow besides, without what a run decides."""
    sections = {
        "general": {k: v for k, v in config.general.items() if k not in _NOT_KEPT},
        "experimental": config.experimental,
        "host_option_defaults": config.host_option_defaults,
    }
    return {name: section for name, section in sections.items() if section}


def _left_out(directory: Path, config: ShadowConfig) -> tuple[str, ...]:
    """Return what is not carried over because each run decides it, or nothing reads it."""
    executables = {process.path for host in config.hosts.values() for process in host.processes}
    options = _NOT_KEPT & config.general.keys() - {"bootstrap_end_time", "stop_time"}
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


def _refused(shown: str, problems: list[str]) -> UserError:
    if len(problems) == 1:
        return UserError(f"{shown}: {problems[0]}", CORRECT)
    lines = [f"  {problem}" for problem in problems[:MOST_SHOWN]]
    if len(problems) > MOST_SHOWN:
        lines.append(f"  and {len(problems) - MOST_SHOWN} more")
    return UserError(
        "\n".join([f"{shown}: {len(problems)} things are wrong", *lines]),
        CORRECT,
    )


def _generate_log(directory: Path) -> bytes | None:
    """The latest log of a ``tornettools generate`` that chose relays, None where there is none.

    One that is called again for a directory that is there fails, and leaves a log all the same.
    """
    for path in sorted(directory.glob(_LOGS), reverse=True):
        try:
            with path.open("rb") as stream:
                log = stream.read(_LARGEST_LOG_BYTES)
        except OSError:
            continue
        if _CHOSEN.search(log):
            return log
    return None


def _without_paths(log: bytes | None) -> bytes | None:
    if log is None:
        return None
    return b"".join(line for line in log.splitlines(keepends=True) if b"/" not in line)


def _generate_options(log: bytes | None) -> dict[str, Any]:
    """The options of ``tornettools generate`` as its log tells them."""
    text = (log or b"").decode(errors="replace")
    line = re.search(r"The argument namespace is: Namespace\((.*)\)", text)
    found = {}
    for name in _GENERATE_OPTIONS:
        value = re.search(rf"\b{name}=('[^']*'|[^,)]*)", line[1]) if line else None
        if value is not None:
            found[name] = _literal(value[1])
    return found


def _literal(text: str) -> int | float | str | bool | None:
    words: dict[str, bool | None] = {"None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    if re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?(e-?[0-9]{1,2})?", text, re.ASCII):
        return float(text)
    return text.strip("'")
