"""Rows of streams.parquet, from one TGen log.

A stream has a stream-success or stream-error line when it has ended. Streams without such a line
are inferred from the rest of the log: TGen numbers streams 0, 1, 2, ... in order of creation, and
every heartbeat counts the streams created so far. If a stream with a number below this count has no
line, the stream was still open, or the line was lost. Heartbeats and adjacent streams bound the
start of such a stream.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.errors import AnalysisError
from analysis.formats.byte_marks import BYTE_MARKS
from analysis.formats.columns import Outcome
from analysis.records.tgenlog import MAX_OPEN_STREAMS, Complete, Progress, TgenLog

Row = dict[str, Any]
"""A row as column -> value."""

_BY_STREAM_ERROR = {
    "TIMEOUT": Outcome.TIMEOUT,
    "STALLOUT": Outcome.STALL,
    "READEOF": Outcome.CLOSED,
    "WRITEEOF": Outcome.CLOSED,
    "READ": Outcome.CONNECTION_ERROR,
    "WRITE": Outcome.CONNECTION_ERROR,
    "MISC": Outcome.CONNECTION_ERROR,
    "AUTH": Outcome.PROTOCOL_ERROR,
    "MODEL": Outcome.PROTOCOL_ERROR,
    "CHECKSUM": Outcome.PROTOCOL_ERROR,
    "FOOTER": Outcome.PROTOCOL_ERROR,
}
_BY_TRANSPORT_ERROR = {"TIMEOUT": Outcome.TIMEOUT, "STALLOUT": Outcome.STALL}

FIRST_BYTE_THRESHOLD_BYTES = 1024
"""Bytes that a stream must have read before its first payload byte counts as received.

Heartbeats also count the SOCKS replies and TGen's response header, which come before the payload
and have less than 300 bytes in total.
"""


def stream_rows(log: TgenLog) -> list[Row]:
    """Return rows of streams.parquet, for the streams that this process started.

    Streams with a final line come first, then streams without a final line. The rows lack the
    client, its class and the stream's index in the table.

    Raises:
        AnalysisError: there are more streams without a final line than a host can have open.
    """
    rows = [
        _complete_row(one, log.progress.get(one.stream_id), log.epoch_us)
        for one in log.active_streams
    ]
    sizes = {one.requested_bytes for one in log.active_streams}
    requested = sizes.pop() if len(sizes) == 1 else None
    return rows + _missing_rows(log, requested or None)


def classify(success: bool, error: str, transport_error: str) -> tuple[Outcome, str]:
    """Return the outcome of an ended stream, and the name of its error.

    Names of errors are those of ``_tgenstream_errorToString`` in TGen. For PROXY, the name is
    ``PROXY-`` and the transport's error, as ``_tgentransport_errorToString`` in TGen names it. If a
    stream times out before the transport made any progress, TGen logs PROXY with the transport's
    error TIMEOUT. This counts as a timeout.
    """
    if success:
        return Outcome.SUCCESS, ""
    if error == "PROXY":
        outcome = _BY_TRANSPORT_ERROR.get(transport_error, Outcome.PROXY_ERROR)
        return outcome, f"PROXY-{transport_error}"
    if error.startswith("HEADER"):
        return Outcome.PROTOCOL_ERROR, error
    return _BY_STREAM_ERROR.get(error, Outcome.OTHER_ERROR), error


def _seconds(us: int | None) -> float | None:
    # In a damaged line, times may be out of order, so that their difference is negative.
    return None if us is None or us < 0 else us / 1e6


def _complete_row(c: Complete, progress: Progress | None, epoch_us: int) -> Row:
    start_us = c.end_us - c.duration_us
    outcome, error = classify(c.success, c.error, c.transport_error)
    requested = c.requested_bytes or None
    # In an error line, the time of the last byte is the time of the last received byte. It is the
    # time to the last byte only if no byte of the request is missing.
    whole = c.success or (requested is not None and c.payload_bytes >= requested)
    last_byte_us = c.last_byte_us if whole else None
    marks: Row = {}
    for name, amount in BYTE_MARKS.items():
        reached_us = None if progress is None else progress.marks_us.get(amount)
        if c.payload_bytes < amount:
            continue
        if requested == amount:
            marks[name] = _seconds(last_byte_us)
        # A status line from before the start of the stream shows a clock error, not progress.
        elif reached_us is not None and reached_us >= start_us:
            marks[name] = _seconds(reached_us - start_us)
    from_command = None
    if c.first_byte_us is not None and c.command_us is not None:
        from_command = c.first_byte_us - c.command_us
    return {
        "stream_id": c.stream_id,
        "server": c.server or None,
        "start_s": (start_us - epoch_us) / 1e6,
        "start_resolution_s": 0.0,
        "time_to_proxy_reply_s": _seconds(c.proxy_response_us),
        "ttfb_from_start_s": _seconds(c.first_byte_us),
        "ttfb_from_command_s": _seconds(from_command),
        "ttfb_resolution_s": None if c.first_byte_us is None else 0.0,
        **marks,
        "time_to_last_byte_s": _seconds(last_byte_us),
        "bytes_requested": requested,
        "bytes_received": c.payload_bytes,
        "outcome": outcome.value,
        "error": error or None,
        "end_s": (c.end_us - epoch_us) / 1e6,
    }


def _missing_rows(log: TgenLog, requested: int | None) -> list[Row]:
    """Return rows for the created streams without a stream-success or stream-error line, in order.

    requested: the payload in bytes that each stream requests; None if unknown.

    Raises:
        AnalysisError: there are more such streams than a host can have open.
    """
    if log.first_us is None or log.last_us is None:
        return []
    ended = {complete.stream_id for complete in log.completes}
    beats = log.heartbeats
    count = max(
        beats[-1].total_created if beats else 0,
        *(max(numbers, default=-1) + 1 for numbers in (ended, log.progress, log.created_us)),
    )
    if count - len(ended) > MAX_OPEN_STREAMS:
        raise AnalysisError(
            f"{count - len(ended)} of the {count} counted streams have no line",
            "the log is damaged, or most of it is missing",
        )
    missing = [number for number in range(count) if number not in ended]
    # A stream that ended is counted by the last heartbeat, or has a line after this heartbeat. All
    # other streams are open. If more streams lack a line than are open, lines were lost. Assume
    # that the lost lines are those of the streams with the lowest numbers, because later streams
    # are more likely to be open.
    lost_count = len(missing)
    if beats:
        ended_count = beats[-1].total_succeeded + beats[-1].total_failed
        ended_count += sum(c.heartbeats_before == len(beats) for c in log.completes)
        lost_count = max(0, len(missing) - max(0, count - ended_count))
    starts_us = {c.stream_id: c.end_us - c.duration_us for c in log.completes} | log.created_us
    numbers = sorted(starts_us)
    alone = len(missing) == 1 and lost_count == 0
    open_bytes = _single_open_bytes(log, missing[0]) if alone else None
    rows = []
    for place, number in enumerate(missing):
        early_us, late_us = _start_bounds(log, number, starts_us, numbers)
        start_us = (early_us + late_us) / 2
        received: int | None = None
        first_us: tuple[int, int] | None = None
        marks_us: dict[int, int] = {}
        if number in log.progress:
            marks_us = log.progress[number].marks_us
            received = log.progress[number].payload_bytes
            first_us = (marks_us[1], marks_us[1]) if 1 in marks_us else None
        elif open_bytes is not None:
            received, first_us = open_bytes
        if received is not None and requested is not None:
            received = min(received, requested)
        row = {
            "stream_id": number,
            "start_s": (start_us - log.epoch_us) / 1e6,
            "start_resolution_s": (late_us - early_us) / 1e6,
            **{
                name: max(0.0, (marks_us[amount] - start_us) / 1e6)
                for name, amount in BYTE_MARKS.items()
                if amount in marks_us
            },
            "bytes_requested": requested,
            "bytes_received": received,
            "outcome": (Outcome.UNKNOWN if place < lost_count else Outcome.OPEN).value,
            "end_s": (log.last_us - log.epoch_us) / 1e6,
        }
        if first_us is not None:
            early = max(first_us[0], start_us)
            late = max(first_us[1], early)
            row["ttfb_from_start_s"] = ((early + late) / 2 - start_us) / 1e6
            row["ttfb_resolution_s"] = (late - early) / 1e6
        rows.append(row)
    return rows


def _start_bounds(
    log: TgenLog, number: int, starts_us: Mapping[int, int], numbers: Sequence[int]
) -> tuple[int, int]:
    """Return bounds of the time at which a stream was created, as Unix times in microseconds.

    starts_us: number of a stream -> its time of creation, if it is known. numbers: its sorted keys.
    """
    if number in starts_us:
        return starts_us[number], starts_us[number]
    assert log.first_us is not None
    assert log.last_us is not None
    beat = bisect.bisect_right(log.heartbeats, number, key=lambda beat: beat.total_created)
    early = log.heartbeats[beat - 1].time_us if beat > 0 else log.first_us
    late = log.heartbeats[beat].time_us if beat < len(log.heartbeats) else log.last_us
    place = bisect.bisect_left(numbers, number)
    if place > 0:
        early = max(early, starts_us[numbers[place - 1]])
    if place < len(numbers):
        late = min(late, starts_us[numbers[place]])
    # A heartbeat and a stream that is created at the same moment may have time stamps that differ
    # by microseconds, so early may be larger than late.
    return min(early, late), late


def _single_open_bytes(log: TgenLog, number: int) -> tuple[int, tuple[int, int] | None] | None:
    """Return the bytes of the only open stream, and bounds of the arrival of its first byte.

    After the last heartbeat without an open stream, all bytes read by the client belong to the open
    stream, or to streams that have ended since and whose sizes are known. Returns None if no
    heartbeat counts the stream.
    """
    beats = log.heartbeats
    if not beats or beats[-1].total_created <= number:
        return None
    quiet = -1
    for index, beat in enumerate(beats):
        if beat.total_created == beat.total_succeeded + beat.total_failed:
            quiet = index
    others_by_beat: Counter[int] = Counter()
    for complete in log.completes:
        if quiet < complete.heartbeats_before < len(beats):
            others_by_beat[complete.heartbeats_before] += complete.total_bytes
    # A stream's bytes may be read in several heartbeat intervals. So the bytes of the open stream
    # are known only at heartbeats before which all other streams have ended.
    last_other = max(others_by_beat, default=quiet)
    received = -others_by_beat.total()
    first_us: tuple[int, int] | None = None
    for index in range(quiet + 1, len(beats)):
        received += beats[index].bytes_read
        if (
            first_us is None
            and index >= last_other
            and beats[index].total_created > number
            and received >= FIRST_BYTE_THRESHOLD_BYTES
        ):
            early_us = beats[index - 1].time_us if index > 0 else log.first_us
            first_us = (early_us or 0, beats[index].time_us)
    return max(0, received), first_us
