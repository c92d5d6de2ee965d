"""tgentools' analysis of tgen logs, ``tgen.analysis.json[.xz]``.

Two layouts of a node are read: with ``stream_summary`` (since tgentools 1.0.0), and with
``transfers_summary`` (OnionPerf's and tgentools' before it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from analysis.imports.reading import LocatedValue, read_located
from analysis.imports.simulation import ImportedSimulation, size_class

EPOCH_UNIX_S = 946684800
"""Simulated time starts at 2000-01-01 00:00:00 UTC."""

NAMES = ("tgen.analysis.json", "tgen.analysis.json.xz")

_TIMES = {
    "stream_summary": {
        "time_to_first_byte_recv": "download_ttfb",
        "time_to_last_byte_recv": "download_ttlb",
    },
    "transfers_summary": {
        "time_to_first_byte": "download_ttfb",
        "time_to_last_byte": "download_ttlb",
    },
}

_GOODPUTS = {
    "download_goodput_500kib_1mib": (512000, 1048576),
    "download_goodput_4mib_5mib": (4194304, 5242880),
}

_CIRCUITS = {
    "perfclient": "exit",
    "perfclientexit": "exit",
    "perfclientonionservice": "onionservice",
}


def read_analysis(
    path: Path, *, begin_s: float | None = None, end_s: float | None = None
) -> ImportedSimulation:
    """One simulation's file.

    Args:
        path: tgen.analysis.json or tgen.analysis.json.xz.
        begin_s: simulated time from which downloads count, by when they completed.
        end_s: simulated time before which they count.

    Raises:
        AnalysisError: damaged, or not such a file; says where.
    """
    top = read_located(path)
    kind, data = top.get("type"), top.get("data")
    if kind is None or kind.value != "tgen" or data is None:
        raise top.wrong('tgentools\' analysis ("type": "tgen" and "data")')
    span = (
        -float("inf") if begin_s is None else begin_s,
        float("inf") if end_s is None else end_s,
    )
    simulation = ImportedSimulation(path.parent.name)
    nodes = 0
    for name, node in data.items():
        tgen = node.get("tgen")
        if tgen is None:
            continue
        nodes += 1
        _add_node(simulation, class_of(name), tgen, span)
    if not nodes:
        raise data.wrong('nodes with "tgen"')
    return simulation


def class_of(node: str) -> str:
    """A node's class of clients: its name without number, tornettools' own by kind of circuit."""
    stem = re.sub(r"\d+", "", node)
    return _CIRCUITS.get(stem, stem or "client")


def _add_node(
    simulation: ImportedSimulation, class_name: str, tgen: LocatedValue, span: tuple[float, float]
) -> None:
    layout = next((name for name in _TIMES if tgen.get(name) is not None), None)
    if layout is None:
        raise tgen.wrong(f"one of {' and '.join(_TIMES)}")
    summary = tgen.get(layout)
    assert summary is not None
    completed = 0
    for key, duration in _TIMES[layout].items():
        for size, seconds in _by_size(summary.get(key), span):
            if duration == "download_ttlb":
                completed += len(seconds)
                simulation.add(size_class(class_name, size), duration, seconds)
            else:
                simulation.add(class_name, duration, seconds)
    round_trips = summary.get("round_trip_time")
    if round_trips is not None:
        for values in _in_span(round_trips, span):
            simulation.add(class_name, "round_trip_time", values.numbers())
    failed = 0
    for _, by_second in errors.items() if (errors := summary.get("errors")) else ():
        failed += sum(len(list(values.elements())) for values in _in_span(by_second, span))
    before = simulation.downloads.get(class_name, (0.0, 0.0))
    simulation.downloads[class_name] = (before[0] + failed, before[1] + failed + completed)
    streams = tgen.get("streams")
    if streams is not None:
        for name, speed in _goodputs(streams, span):
            simulation.goodputs.setdefault((class_name, name), []).append(speed)


def _by_size(
    part: LocatedValue | None, span: tuple[float, float]
) -> Iterator[tuple[int, list[float]]]:
    if part is None:
        return
    for size, by_second in part.items():
        number = part.key_number(size)
        for values in _in_span(by_second, span):
            yield number, values.numbers()


def _in_span(by_second: LocatedValue, span: tuple[float, float]) -> Iterator[LocatedValue]:
    for second, values in by_second.items():
        if span[0] <= by_second.key_number(second) - EPOCH_UNIX_S < span[1]:
            yield values


def _goodputs(streams: LocatedValue, span: tuple[float, float]) -> Iterator[tuple[str, float]]:
    for _, stream in streams.items():
        if stream.value is None:
            # tgentools writes null for a stream that had not ended.
            continue
        elapsed, end = stream.get("elapsed_seconds"), stream.get("unix_ts_end")
        if elapsed is None or end is None:
            continue
        if not span[0] <= int(end.number()) - EPOCH_UNIX_S < span[1]:
            continue
        for name, (first, last) in _GOODPUTS.items():
            begin_s, finish_s = (_seconds_at(stream, elapsed, size) for size in (first, last))
            if begin_s is not None and finish_s is not None and finish_s > begin_s:
                yield name, (last - first) / (finish_s - begin_s)


def _seconds_at(stream: LocatedValue, elapsed: LocatedValue, size_bytes: int) -> float | None:
    """When that many bytes had come: as bytes, or as a tenth of the download's size."""
    received = elapsed.get("payload_bytes_recv")
    at = None if received is None else received.get(str(size_bytes))
    if at is not None:
        return at.number()
    info, progress = stream.get("stream_info"), elapsed.get("payload_progress_recv")
    size = None if info is None else info.get("recvsize")
    if size is None or progress is None or not isinstance(size.value, str):
        return None
    requested = size.key_number(size.value)
    at = progress.get(str(size_bytes / requested)) if requested > 0 else None
    return None if at is None else at.number()
