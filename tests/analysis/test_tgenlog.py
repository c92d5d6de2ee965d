"""The parser of TGen's log lines, on real logs and on damaged ones."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

import pytest
from analysis_synthetic import EPOCH, GOLDEN, KIB, LogWriter, golden_text, known
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.formats.run_files import RunClock
from analysis.records.logfile import MAX_EXAMPLES
from analysis.records.tgenlog import TgenLog

LOGS = sorted(path.name for path in GOLDEN.glob("*.log*"))
TGENTOOLS = json.loads((GOLDEN / "tgentools.json").read_text())


def golden_lines(name: str) -> list[bytes]:
    return golden_text(name).split(b"\n")[:-1]


def parse(lines: list[bytes]) -> TgenLog:
    log = TgenLog()
    log.feed(lines)
    return log


def sample_log() -> LogWriter:
    log = LogWriter("web1client").start()
    log.heartbeat(241.0, 0)
    first = log.create()
    log.heartbeat(242.0, 1000, 3000)
    log.end(242.5, first, 241.25, command_s=0.25, first_byte_s=0.5, last_byte_s=1.2)
    log.heartbeat(243.0, 327000)
    second = log.create()
    log.heartbeat(244.0, 12)
    log.end(303.0, second, 243.0, payload=0, error="TIMEOUT", command_s=0.3)
    return log


SAMPLE = sample_log().text()
MANY = b"created=86400002,total-streams-succeeded=86400001"


@pytest.mark.parametrize("name", LOGS)
def test_every_line_is_understood_and_times_agree_with_tgentools(name: str) -> None:
    expected = TGENTOOLS[name]
    log = parse(golden_lines(name))
    assert log.malformed == 0
    understood = log.other_lines + log.status_lines + len(log.heartbeats) + len(log.completes)
    assert log.lines == understood
    assert {str(c.stream_id) for c in log.completes} == set(expected)
    for complete in log.completes:
        theirs = expected[str(complete.stream_id)]
        # tgentools computes with floats of about 1.8e9 s, which loses a quarter of a microsecond.
        assert complete.end_us / 1e6 == pytest.approx(theirs["end"], abs=1e-6)
        start_us = complete.end_us - complete.duration_us
        assert start_us / 1e6 == pytest.approx(theirs["start"], abs=1e-6)
        assert complete.success == theirs["success"]
        assert complete.error == theirs["error"]
        if complete.success:
            command_us = known(complete.command_us)
            ttfb_us = known(complete.first_byte_us) - command_us
            ttlb_us = known(complete.last_byte_us) - command_us
            assert ttfb_us / 1e6 == pytest.approx(theirs["ttfb_from_command"])
            assert ttlb_us / 1e6 == pytest.approx(theirs["ttlb_from_command"])


def test_status_lines_time_320_kib_between_tgentools_thresholds() -> None:
    name = "bulk-info.log.gz"
    theirs = TGENTOOLS[name]["0"]["elapsed"]
    log = parse(golden_lines(name))
    target = log.progress[0].marks_us[320 * KIB]
    start = log.completes[0].end_us - log.completes[0].duration_us
    assert theirs["204800"] < (target - start) / 1e6 < theirs["512000"]


def facts(log: TgenLog) -> tuple[object, ...]:
    return (log.heartbeats, log.completes, log.progress, log.malformed, log.last_us)


def shuffle_fields(line: bytes, seed: int) -> bytes:
    def shuffled(match: re.Match[bytes]) -> bytes:
        fields = match[1].split(b",")
        random.Random(seed).shuffle(fields)
        return b"[" + b",".join(fields) + b"]"

    return re.sub(rb"\[([^\[\]]*=[^\[\]]*)\]", shuffled, line)


@given(st.sampled_from(LOGS), st.integers(0, 1 << 32))
@settings(max_examples=30)
def test_the_order_of_fields_does_not_matter(name: str, seed: int) -> None:
    lines = golden_lines(name)
    mixed = [shuffle_fields(line, seed) for line in lines]
    assert facts(parse(mixed)) == facts(parse(lines))


@given(st.integers(0, len(SAMPLE)))
def test_any_truncation_keeps_the_whole_lines(cut: int) -> None:
    *lines, tail = SAMPLE[:cut].split(b"\n")
    log = parse(lines)
    log.feed_tail(tail)
    # If the cut is just before a newline, the last line is complete and counts. Otherwise it does
    # not count.
    whole = SAMPLE[:cut].count(b"\n")
    complete_tail = tail in SAMPLE.split(b"\n") and tail.endswith(b"]")
    data_lines = parse(SAMPLE.split(b"\n")[: whole + complete_tail])
    assert facts(log) == facts(data_lines)
    assert log.malformed == 0


GARBAGE = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(SAMPLE.split(b"\n")[:-1]).flatmap(
        lambda line: st.integers(0, len(line) - 1).map(lambda n: line[:n])
    ),
    st.text(max_size=80).map(str.encode),
).filter(lambda line: b"\n" not in line)


# No garbage is inserted before the first line. If the log began with a piece of a later line, all
# heartbeats before the time of that line would be malformed, too.
@given(st.lists(st.tuples(st.integers(1, 6), GARBAGE), max_size=12))
def test_garbage_lines_are_counted_and_hurt_nothing_else(garbage: list[tuple[int, bytes]]) -> None:
    lines = SAMPLE.split(b"\n")[:-1]
    clean = parse(lines)
    dirty = list(lines)
    for place, line in garbage:
        dirty.insert(place, line)
    log = parse(dirty)
    assert log.heartbeats == clean.heartbeats
    assert [c._replace(heartbeats_before=0) for c in log.completes] == [
        c._replace(heartbeats_before=0) for c in clean.completes
    ]
    # If a line is cut inside free text, its form is still valid. It is counted in ``other_lines``.
    assert log.malformed + log.other_lines - clean.other_lines == len(garbage)
    assert len(log.examples) == min(log.malformed, MAX_EXAMPLES)
    for example in log.examples:
        assert dirty[example.line - 1].startswith(example.text.encode()[:5]) or "\\" in example.text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"bytes-read=1000", b"bytes-read=-1", "negative"),
        (b"bytes-read=1000,", b"", "no field bytes-read"),
        (b"recvsize=327680", b"recvsize=x", "not a number"),
        (b"created-ts=246250000", b"created-ts=946250000", "ended before its start"),
        (b"usecs-to-first-byte-recv=500000,", b"", "no field usecs-to-first-byte-recv"),
        (b"id=0,", b"id=0,id=0,", "bad field"),
        (b"] times [", b"] times ", "grammar"),
        (b"error=NONE] bytes", b"error=READ] bytes", "success line with an error"),
        (b"created=1,total-streams-p", b"created=70000,total-streams-p", "more streams open"),
        (b"created=1,total-streams-succeeded=1", MANY, "86400002 streams are more than a run"),
        (b"id=0,", b"id=86400001,", "streams are more than a run of 86400 s has"),
    ],
)
def test_a_bad_field_makes_the_line_malformed(old: bytes, new: bytes, reason: str) -> None:
    assert old in SAMPLE
    log = parse(SAMPLE.replace(old, new, 1).split(b"\n")[:-1])
    assert log.malformed == 1
    assert reason in log.examples[0].reason


def test_counters_that_run_backwards_are_malformed() -> None:
    lines = SAMPLE.split(b"\n")[:-1]
    beats = [line for line in lines if b"heartbeat" in line]
    log = parse([beats[0], beats[2], beats[1], beats[3]])
    assert log.malformed == 1
    assert [beat.bytes_read for beat in log.heartbeats] == [0, 327000, 12]


def test_a_stream_ends_once() -> None:
    lines = SAMPLE.split(b"\n")[:-1]
    log = parse(lines + lines)
    assert [complete.stream_id for complete in log.completes] == [0, 1]
    assert log.malformed == len(lines) - 1
    assert "stream 0 has ended before" in [example.reason for example in log.examples]
    # Streams that the process accepts as a server are numbered separately, so each number can occur
    # once more.
    accepted = [line.replace(b"vertexid=stream", b"vertexid=passive-stream") for line in lines]
    assert len(parse([*lines, *accepted]).completes) == 4


def beating_log(kept: Callable[[int], bool]) -> LogWriter:
    """Return a log with a heartbeat in each second from 241 to 540 s for which ``kept`` is true."""
    log = LogWriter("client1").start()
    for second in filter(kept, range(241, 541)):
        log.heartbeat(float(second), 0)
    return log


@pytest.mark.parametrize(
    ("kept", "problem"),
    [
        (lambda second: second < 540, None),
        (lambda second: second < 539, "it ends at 538 s, and the run at 541 s"),
        (lambda second: second % 3, "it has no heartbeat from 242 to 244 s"),
        (lambda second: not 300 <= second < 400, "it has no heartbeat from 299 to 400 s"),
        (lambda second: second > 400, "it has no heartbeat from 240 to 401 s"),
    ],
)
def test_an_early_end_and_missing_heartbeats_are_named(
    kept: Callable[[int], bool], problem: str | None
) -> None:
    clock = RunClock(epoch_unix_s=EPOCH, stop_s=541.0)
    assert parse(beating_log(kept).text().splitlines()).damage(clock) == problem


def test_the_end_is_only_early_if_the_process_should_have_continued() -> None:
    log = beating_log(lambda second: second < 539)
    lines = log.text().splitlines()
    assert parse(lines).damage(RunClock(epoch_unix_s=EPOCH)) is None
    assert parse(lines[1:]).damage(RunClock(epoch_unix_s=EPOCH)) == "its beginning is missing"
    log.line(545.0, "returning 0 from main")
    exited = parse(log.text().splitlines())
    assert exited.damage(RunClock(epoch_unix_s=EPOCH, stop_s=2000.0)) is None
