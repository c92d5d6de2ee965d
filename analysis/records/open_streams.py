"""Streams without a line in the log, inferred from the rest of the log.

TGen numbers streams 0, 1, 2, ... in order of creation, and every heartbeat counts the streams
created so far. If a stream with a number below this count has no stream-success or stream-error
line, the stream was still open, or the line was lost. Heartbeats and adjacent streams bound the
start of such a stream.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from analysis.errors import AnalysisError
from analysis.records.tgenlog import MAX_OPEN_STREAMS, TgenLog

FIRST_BYTE_THRESHOLD_BYTES = 1024
"""Bytes that a stream must have read before its first payload byte counts as received.

Heartbeats also count the SOCKS replies and TGen's response header, which come before the payload
and have less than 300 bytes in total.
"""


@dataclass(frozen=True)
class Missing:
    """A stream without a stream-success or stream-error line. Times are wall-clock microseconds.

    The stream started between ``start_early_us`` and ``start_late_us``. Its first byte arrived
    between ``first_byte_early_us`` and ``first_byte_late_us``; both are None if no arrival is
    known. ``lost`` is True if the line was lost, and False if the stream was still open.
    """

    stream_id: int
    lost: bool
    start_early_us: int
    start_late_us: int
    first_byte_early_us: int | None
    first_byte_late_us: int | None
    received_bytes: int | None


def find_missing(log: TgenLog) -> list[Missing]:
    """Return the created streams without a stream-success or stream-error line, in order.

    Raises:
        AnalysisError: there are more such streams than a host can have open.
    """
    if log.first_us is None or log.last_us is None:
        return []
    ended = {complete.stream_id for complete in log.completes}
    beats = log.heartbeats
    count = max(
        beats[-1].total_created if beats else 0,
        max(ended, default=-1) + 1,
        max(log.progress, default=-1) + 1,
        max(log.created_us, default=-1) + 1,
    )
    if count - len(ended) > MAX_OPEN_STREAMS:
        raise AnalysisError(
            f"{count - len(ended)} of the {count} counted streams have no line",
            "the log is damaged, or most of it is missing",
        )
    missing = [number for number in range(count) if number not in ended]
    if not missing:
        return []
    # A stream that ended is counted by the last heartbeat, or has a line after this heartbeat. All
    # other streams are open. If more streams lack a line than are open, lines were lost. Assume
    # that the lost lines are those of the streams with the lowest numbers, because later streams
    # are more likely to be open.
    if beats:
        ended_count = beats[-1].total_succeeded + beats[-1].total_failed
        ended_count += sum(c.heartbeats_before == len(beats) for c in log.completes)
        open_count = max(0, min(len(missing), count - ended_count))
    else:
        open_count = 0
    lost = set(missing[: len(missing) - open_count])
    starts = _StartBounds(log)
    open_bytes = _single_open_bytes(log, missing) if not lost else None
    found = []
    for number in missing:
        early, late = starts.bounds(number)
        progress = log.progress.get(number)
        first_early: int | None = None
        first_late: int | None = None
        received: int | None = None
        if progress is not None:
            first_early = first_late = progress.marks_us.get(1)
            received = progress.payload_bytes
        elif open_bytes is not None:
            received, first_early, first_late = open_bytes
        found.append(
            Missing(number, number in lost, early, late, first_early, first_late, received)
        )
    return found


class _StartBounds:
    """Computes bounds of the creation time of a stream from its number."""

    def __init__(self, log: TgenLog) -> None:
        assert log.first_us is not None
        assert log.last_us is not None
        known = {c.stream_id: c.end_us - c.duration_us for c in log.completes}
        known.update(log.created_us)
        self.known = known
        self.numbers = sorted(known)
        self.beat_totals = [beat.total_created for beat in log.heartbeats]
        self.beat_times = [beat.time_us for beat in log.heartbeats]
        self.first_us = log.first_us
        self.last_us = log.last_us

    def bounds(self, number: int) -> tuple[int, int]:
        if number in self.known:
            return self.known[number], self.known[number]
        early, late = self.first_us, self.last_us
        beat = bisect.bisect_right(self.beat_totals, number)
        if beat > 0:
            early = self.beat_times[beat - 1]
        if beat < len(self.beat_times):
            late = self.beat_times[beat]
        place = bisect.bisect_left(self.numbers, number)
        if place > 0:
            early = max(early, self.known[self.numbers[place - 1]])
        if place < len(self.numbers):
            late = min(late, self.known[self.numbers[place]])
        # A heartbeat and a stream that is created at the same moment may have time stamps that
        # differ by microseconds, so early may be larger than late.
        return min(early, late), late


def _single_open_bytes(
    log: TgenLog, missing: list[int]
) -> tuple[int, int | None, int | None] | None:
    """Return the bytes of the only open stream, and bounds of the arrival of its first byte.

    After the last heartbeat without an open stream, all bytes read by the client belong to the open
    stream, or to streams that have ended since and whose sizes are known. Returns None if several
    streams are in ``missing``, or if no heartbeat counts the stream.
    """
    beats = log.heartbeats
    if len(missing) != 1 or not beats or beats[-1].total_created <= missing[0]:
        return None
    quiet = -1
    for index, beat in enumerate(beats):
        if beat.total_created == beat.total_succeeded + beat.total_failed:
            quiet = index
    others_by_beat: dict[int, int] = {}
    for complete in log.completes:
        before = complete.heartbeats_before
        if quiet < before < len(beats):
            others_by_beat[before] = others_by_beat.get(before, 0) + complete.total_bytes
    # A stream's bytes may be read in several heartbeat intervals. So the bytes of the open stream
    # are known only at heartbeats before which all other streams have ended.
    last_other = max(others_by_beat, default=quiet)
    received = 0
    early: int | None = None
    late: int | None = None
    others = sum(others_by_beat.values())
    for index in range(quiet + 1, len(beats)):
        received += beats[index].bytes_read
        if index < last_other or beats[index].total_created <= missing[0]:
            continue
        if late is None and received - others >= FIRST_BYTE_THRESHOLD_BYTES:
            early = beats[index - 1].time_us if index > 0 else log.first_us
            late = beats[index].time_us
    return max(0, received - others), early, late
