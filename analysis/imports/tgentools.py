"""Import of analyses of TGen's logs by tgentools and OnionPerf, ``*.analysis.json[.xz]``.

Three layouts of a node are supported: ``stream_summary`` (since tgentools 1.0.0),
``transfers_summary`` (earlier tgentools and OnionPerf), and only ``streams`` (OnionPerf since
version 3.0). The latter is counted by the definitions of tgentools' summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.imports.reading import LocatedValue, read_located
from analysis.imports.simulation import ImportedSimulation, size_class

EPOCH_UNIX_S = 946684800
"""Simulated time starts at 2000-01-01 00:00:00 UTC."""

NAME = "tgen.analysis.json"

ONIONPERF_ENDING = "onionperf.analysis.json"
"""Suffix of OnionPerf's own files: DATE.SOURCE.onionperf.analysis.json[.xz]."""

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

_SINCE_COMMAND = {
    "usecs-to-response": "round_trip_time",
    "usecs-to-first-byte-recv": "download_ttfb",
    "usecs-to-last-byte-recv": "download_ttlb",
}

_CIRCUITS = {
    "perfclient": "exit",
    "perfclientexit": "exit",
    "perfclientonionservice": "onionservice",
}


def read_analysis(
    path: Path, *, begin_s: float | None = None, end_s: float | None = None
) -> ImportedSimulation:
    """Read the analysis of one simulation, or of an OnionPerf measurement.

    Args:
        path: the file, plain or xz.
        begin_s: simulated time from which downloads count, by their completion.
        end_s: simulated time before which they count.

    Raises:
        AnalysisError: the file is damaged or of another kind, with the location; or simulated times
            are given for a file of OnionPerf.
    """
    top = read_located(path)
    kind, data = top.get("type"), top.get("data")
    if kind is None or kind.value not in ("tgen", "onionperf") or data is None:
        expected = 'an analysis of tgentools or OnionPerf ("type": "tgen" or "onionperf")'
        raise (top if kind is None or data is None else kind).wrong(expected)
    if kind.value == "onionperf" and (begin_s, end_s) != (None, None):
        raise AnalysisError(
            f"{path} is a measurement of OnionPerf, which has no simulated time",
            "import it without --start and --end",
        )
    span = (
        -float("inf") if begin_s is None else begin_s,
        float("inf") if end_s is None else end_s,
    )
    stem = path.name.removesuffix(".xz")
    named = path.parent.name if stem == NAME else stem
    simulation = ImportedSimulation(named.removesuffix(".json").removesuffix(".onionperf.analysis"))
    lacking = []
    for name, node in data.items():
        tgen = node.get("tgen")
        if tgen is None:
            lacking.append(name)
            continue
        _add_node(simulation, client_class(name), tgen, span)
    if len(lacking) == len(dict(data.items())):
        raise data.wrong('nodes with "tgen"')
    if lacking:
        simulation.notes.append(f'nodes without "tgen": {", ".join(lacking)}')
    if top.get("filters") is not None:
        simulation.notes.append("OnionPerf's filters are not applied")
    return simulation


def client_class(node: str) -> str:
    """Return a node's class of clients: its name without the number.

    tornettools appends the kind of circuit to the number, and uses it as the class of its own
    clients.
    """
    stem = re.sub(r"\d+(?=(exit|onionservice)?\Z)", "", node)
    return _CIRCUITS.get(stem, stem or "client")


def _add_node(
    simulation: ImportedSimulation, class_name: str, tgen: LocatedValue, span: tuple[float, float]
) -> None:
    layout = next((name for name in _TIMES if tgen.get(name) is not None), None)
    streams = tgen.get("streams")
    if layout is None and streams is None:
        raise tgen.wrong(f"one of {', '.join(_TIMES)} and streams")
    if layout is not None:
        _add_summary(simulation, class_name, layout, tgen.required(layout), span)
    pending = 0
    for _, stream in () if streams is None else streams.items():
        if stream.value is None:
            # tgentools writes null for a stream that had not ended.
            pending += 1
        elif layout is not None:
            _add_goodputs(simulation, class_name, stream, span)
        else:
            _add_stream(simulation, stream, span)
    if pending:
        simulation.notes.append(f"{pending} streams of {class_name} had not ended")


def _add_summary(
    simulation: ImportedSimulation,
    class_name: str,
    layout: str,
    summary: LocatedValue,
    span: tuple[float, float],
) -> None:
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
    simulation.count(class_name, failed, failed + completed)


def _add_stream(
    simulation: ImportedSimulation, stream: LocatedValue, span: tuple[float, float]
) -> None:
    """Add a stream of OnionPerf by the rules of tgentools' summary (tgentools/analysis.py)."""
    # The key of the stream contains the server's name and address.
    class_name = "onionservice" if ".onion:" in stream.where else "exit"
    if stream.required("is_success").value is not True:
        simulation.count(class_name, 1, 1)
        return
    times = stream.required("time_info")
    received = stream.required("byte_info").required("payload-bytes-recv").whole_number()
    command_us = times.required("usecs-to-command").whole_number()
    for key, duration in _SINCE_COMMAND.items():
        since_us = times.required(key).whole_number() - command_us
        if since_us < 0 or (received <= 0 and duration != "round_trip_time"):
            continue
        if duration == "download_ttlb":
            simulation.add(size_class(class_name, received), duration, [since_us / 1e6])
            simulation.count(class_name, 0, 1)
        else:
            simulation.add(class_name, duration, [since_us / 1e6])
    _add_goodputs(simulation, class_name, stream, span)


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


def _add_goodputs(
    simulation: ImportedSimulation,
    class_name: str,
    stream: LocatedValue,
    span: tuple[float, float],
) -> None:
    elapsed, end = stream.get("elapsed_seconds"), stream.get("unix_ts_end")
    if elapsed is None or end is None:
        return
    if not span[0] <= int(end.number()) - EPOCH_UNIX_S < span[1]:
        return
    for name, (first, last) in _GOODPUTS.items():
        begin_s, finish_s = (_seconds_at(stream, elapsed, size) for size in (first, last))
        if begin_s is not None and finish_s is not None and finish_s > begin_s:
            speed = (last - first) / (finish_s - begin_s)
            simulation.goodputs.setdefault((class_name, name), []).append(speed)


def _seconds_at(stream: LocatedValue, elapsed: LocatedValue, size_bytes: int) -> float | None:
    """Return when that many bytes had arrived, from byte counts or tenths of the size."""
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
