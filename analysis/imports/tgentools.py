"""Import of analyses of TGen's logs by tgentools and OnionPerf, ``*.analysis.json[.xz]``.

The data of a node (a host) can have three layouts: ``stream_summary`` (since tgentools 1.0.0),
``transfers_summary`` (earlier tgentools and OnionPerf), or only ``streams`` (OnionPerf since
version 3.0). Data with only ``streams`` are counted by the definitions of tgentools' summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    TypeAdapter,
    ValidationError,
)

from analysis.errors import AnalysisError, problems_of
from analysis.imports.simulation import (
    ImportedSimulation,
    Integer,
    Measured,
    WholeNumber,
    read_other,
    size_class,
)

EPOCH_UNIX_S = 946684800
"""Simulated time starts at 2000-01-01 00:00:00 UTC."""

NAME = "tgen.analysis.json"

ONIONPERF_ENDING = "onionperf.analysis.json"
"""Suffix of OnionPerf's own files: DATE.SOURCE.onionperf.analysis.json[.xz]."""

_GOODPUTS = {
    "download_goodput_500kib_1mib": (512000, 1048576),
    "download_goodput_4mib_5mib": (4194304, 5242880),
}

_CIRCUITS = {
    "perfclient": "exit",
    "perfclientexit": "exit",
    "perfclientonionservice": "onionservice",
}

BySecond = dict[WholeNumber, list[Measured]]
"""Unix second of completion -> values."""

T = TypeVar("T")


def _refuse_null(value: T | None) -> T:
    if value is None:
        raise ValueError("null is not a value")
    return value


Given = Annotated[T | None, BeforeValidator(_refuse_null)]
"""A value that may be missing, but not null."""

_SECONDS = TypeAdapter(dict[str, Measured])
_SIZES = TypeAdapter(dict[str, WholeNumber])


class _Summary(BaseModel):
    """stream_summary or transfers_summary: times in seconds, by size of the download.

    The first three keys are required. tgentools always writes them, so a file that lacks one of
    them was modified, and the results would lack failures or downloads.
    """

    first_bytes: dict[WholeNumber, BySecond] = Field(
        validation_alias=AliasChoices("time_to_first_byte_recv", "time_to_first_byte")
    )
    last_bytes: dict[WholeNumber, BySecond] = Field(
        validation_alias=AliasChoices("time_to_last_byte_recv", "time_to_last_byte")
    )
    errors: dict[str, dict[WholeNumber, list[Any]]]
    round_trip_time: BySecond = {}


class _Elapsed(BaseModel):
    """Seconds until an amount, or a share, of the payload had arrived."""

    payload_bytes_recv: dict[str, Any] = {}
    payload_progress_recv: dict[str, Any] = {}


class _Timed(BaseModel):
    """Times and byte counts from which goodput is calculated."""

    elapsed_seconds: _Elapsed
    unix_ts_end: Measured
    stream_info: dict[str, Any] = {}


class _Outcome(BaseModel):
    is_success: StrictBool


def _at(*path: str) -> Any:
    return Field(validation_alias=AliasPath(*path))


class _Success(BaseModel):
    """A stream that succeeded. Other streams may lack some of the times.

    Times are in microseconds since the stream's start; -1 for an event that never occurred.
    """

    command: Integer = _at("time_info", "usecs-to-command")
    round_trip_time: Integer = _at("time_info", "usecs-to-response")
    download_ttfb: Integer = _at("time_info", "usecs-to-first-byte-recv")
    download_ttlb: Integer = _at("time_info", "usecs-to-last-byte-recv")
    received: Integer = _at("byte_info", "payload-bytes-recv")


class _Tgen(BaseModel):
    stream_summary: Given[_Summary] = None
    transfers_summary: Given[_Summary] = None
    # The fields of a stream are validated later, when its outcome shows which fields it requires.
    streams: Given[dict[str, dict[str, Any] | None]] = None


class _Node(BaseModel):
    tgen: Given[_Tgen] = None


class _Analysis(BaseModel):
    type: Literal["tgen", "onionperf"]
    data: dict[str, _Node]
    filters: Any = None


def read_analysis(
    path: Path, begin_s: float | None = None, end_s: float | None = None
) -> ImportedSimulation:
    """Read the analysis of one simulation, or of an OnionPerf measurement, plain or xz.

    The downloads that completed in [begin, end) of simulated time are counted.

    Raises:
        AnalysisError: the file is damaged or of another kind (the message names the location), or
            ``begin_s`` or ``end_s`` is given for a file of OnionPerf.
    """
    analysis: _Analysis = read_other(_Analysis, path)
    if analysis.type == "onionperf" and (begin_s, end_s) != (None, None):
        raise AnalysisError(
            f"{path} is a measurement of OnionPerf, which has no simulated time",
            "import it without --start and --end",
        )
    span = (-float("inf") if begin_s is None else begin_s, float("inf") if end_s is None else end_s)
    stem = path.name.removesuffix(".xz")
    named = path.parent.name if stem == NAME else stem
    simulation = ImportedSimulation(named.removesuffix(".json").removesuffix(".onionperf.analysis"))
    nodes = {name: node.tgen for name, node in analysis.data.items() if node.tgen is not None}
    if not nodes:
        raise AnalysisError(f'{path} has no node with "tgen"', "import another file")
    for name, tgen in nodes.items():
        if tgen == _Tgen():
            raise AnalysisError(
                f"{path}: {name} has none of {', '.join(_Tgen.model_fields)}",
                "is it a file of another program or version?",
            )
        _add_node(simulation, client_class(name), tgen, span, path)
    if lacking := [name for name in analysis.data if name not in nodes]:
        simulation.notes.append(f'nodes without "tgen": {", ".join(lacking)}')
    if analysis.filters is not None:
        simulation.notes.append("OnionPerf's filters are not applied")
    return simulation


def client_class(node: str) -> str:
    """Return a node's class of clients: its name without the number.

    For tornettools' perf clients, the class is the kind of circuit: "exit" or "onionservice", which
    is the end of the name ("perfclient1exit"). A name without such an end means "exit".
    """
    stem = re.sub(r"\d+(?=(exit|onionservice)?\Z)", "", node)
    return _CIRCUITS.get(stem, stem or "client")


def _add_node(
    simulation: ImportedSimulation,
    class_name: str,
    tgen: _Tgen,
    span: tuple[float, float],
    path: Path,
) -> None:
    summary = tgen.stream_summary or tgen.transfers_summary
    if summary is not None:
        _add_summary(simulation, class_name, summary, span)
    streams = tgen.streams or {}
    untimed = 0
    for name, stream in streams.items():
        try:
            # tgentools writes null for a stream that had not ended.
            if stream is not None and summary is not None:
                _add_goodputs(simulation, class_name, stream, span)
            elif stream is not None:
                untimed += not _add_stream(simulation, name, stream, span)
        except ValidationError as error:
            problems = "; ".join(problems_of(error, "stream"))
            raise AnalysisError(
                f"{path}: the stream {name[:60]} is not valid: {problems}",
                "is it a file of another program or version?",
            ) from None
    if untimed:
        simulation.notes.append(f"{untimed} streams succeeded without a time to the last byte")
    if pending := list(streams.values()).count(None):
        simulation.notes.append(f"{pending} streams of {class_name} had not ended")


def _add_summary(
    simulation: ImportedSimulation, class_name: str, summary: _Summary, span: tuple[float, float]
) -> None:
    completed = 0
    for by_second in summary.first_bytes.values():
        for seconds in _in_span(by_second, span):
            simulation.add(class_name, "download_ttfb", seconds)
    for size, by_second in summary.last_bytes.items():
        for seconds in _in_span(by_second, span):
            completed += len(seconds)
            simulation.add(size_class(class_name, size), "download_ttlb", seconds)
    for seconds in _in_span(summary.round_trip_time, span):
        simulation.add(class_name, "round_trip_time", seconds)
    failed = sum(len(one) for errors in summary.errors.values() for one in _in_span(errors, span))
    simulation.count(class_name, failed, failed + completed)


def _in_span(by_second: Mapping[int, T], span: tuple[float, float]) -> Iterator[T]:
    for second, values in by_second.items():
        if span[0] <= second - EPOCH_UNIX_S < span[1]:
            yield values


def _add_stream(
    simulation: ImportedSimulation, name: str, stream: dict[str, Any], span: tuple[float, float]
) -> bool:
    """Add a stream of OnionPerf by the rules of tgentools' summary (tgentools/analysis.py).

    These rules do not count a stream that succeeded without a time to the last byte of its payload.

    name: the stream's name, which contains the server's name and address.

    Returns:
        True if the stream counts as completed or failed.

    Raises:
        ValidationError: the stream lacks a field, or a field is not valid.
    """
    class_name = "onionservice" if ".onion:" in name else "exit"
    if not _Outcome.model_validate(stream).is_success:
        simulation.count(class_name, 1, 1)
        return True
    success = _Success.model_validate(stream)
    times_s = {
        duration: [since_us / 1e6]
        for duration in ("round_trip_time", "download_ttfb", "download_ttlb")
        if (since_us := getattr(success, duration) - success.command) >= 0
        and (success.received > 0 or duration == "round_trip_time")
    }
    if "download_ttlb" in times_s:
        simulation.count(class_name, 0, 1)
    for duration, time_s in times_s.items():
        is_sized = duration == "download_ttlb"
        group = size_class(class_name, success.received) if is_sized else class_name
        simulation.add(group, duration, time_s)
    _add_goodputs(simulation, class_name, stream, span)
    return "download_ttlb" in times_s


def _add_goodputs(
    simulation: ImportedSimulation,
    class_name: str,
    stream: dict[str, Any],
    span: tuple[float, float],
) -> None:
    """Add the goodputs of a stream that has byte times and ended in ``span``.

    Raises ValidationError if a field is not valid.
    """
    if not {"elapsed_seconds", "unix_ts_end"} <= stream.keys():
        return
    timed = _Timed.model_validate(stream)
    if not span[0] <= int(timed.unix_ts_end) - EPOCH_UNIX_S < span[1]:
        return
    for name, (first, last) in _GOODPUTS.items():
        begin_s, finish_s = (_seconds_at(timed, size_bytes) for size_bytes in (first, last))
        if begin_s is not None and finish_s is not None and finish_s > begin_s:
            simulation.add(class_name, name, [(last - first) / (finish_s - begin_s)])


def _seconds_at(timed: _Timed, size_bytes: int) -> float | None:
    """Return the seconds until ``size_bytes`` had arrived; None if unknown.

    The time is known if the file states it for ``size_bytes``, or for the ratio of ``size_bytes``
    to the requested size.
    """
    at = _find(timed.elapsed_seconds.payload_bytes_recv, str(size_bytes), _SECONDS)
    shares = timed.elapsed_seconds.payload_progress_recv
    if at is not None or not shares or not isinstance(timed.stream_info.get("recvsize"), str):
        return at
    requested = _find(timed.stream_info, "recvsize", _SIZES)
    return _find(shares, str(size_bytes / requested), _SECONDS) if requested else None


def _find(values: dict[str, Any], key: str, kind: TypeAdapter[dict[str, T]]) -> T | None:
    """Return the value of a key; None if it is missing. Raises ValidationError if it is invalid."""
    return kind.validate_python({key: values[key]})[key] if key in values else None
