"""Logs that no program wrote are read in bounded time and memory, or refused with a reason."""

from __future__ import annotations

import contextlib
import io
import lzma
import random
import time
import tracemalloc
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from analysis_synthetic import EPOCH, KIB, LEVEL, PACKERS, TABLES, LogWriter, extract_log

from analysis.errors import AnalysisError
from analysis.formats import compressed, files
from analysis.formats.compressed import DamagedError, max_content_bytes, pieces
from analysis.formats.tables import read_table
from analysis.measures.catalogue import run_statistics
from analysis.measures.run_data import load_run
from analysis.records.logfile import MAX_LINE_BYTES, MAX_LINES, LogFile


def usual_log() -> LogWriter:
    """Return a client's log with one stream that ended and one that is open."""
    log = LogWriter("client1").start()
    first = log.create()
    log.heartbeat(241.0, 300)
    log.end(242.5, first, 240.5, last_byte_s=1.9)
    log.create()
    log.heartbeat(243.0, 300)
    return log


def require_readable(records: Path) -> None:
    for path in records.glob("*.parquet"):
        read_table(path, TABLES[path.name])


@pytest.mark.parametrize("second", [EPOCH - 1, EPOCH + 239, 999_999_999_999])
def test_a_heartbeat_from_outside_of_its_log_is_malformed(tmp_path: Path, second: int) -> None:
    """The heartbeat is before the run, before the first line of the log, or after any run's end."""
    text = usual_log().text()
    before = f" {EPOCH + 241}.000000 ".encode()
    assert text.count(before) == 1
    report = extract_log(tmp_path, text.replace(before, f" {second}.000000 ".encode()))
    assert report.malformed_lines == 1
    assert report.heartbeat_lines == 1
    require_readable(tmp_path / "out")


def test_times_of_a_stream_that_are_out_of_order_are_left_out(tmp_path: Path) -> None:
    log = usual_log()
    log.end(244.0, 1, 242.6, requested=9, command_s=1.0, first_byte_s=0.5)
    extract_log(tmp_path, log.text())
    require_readable(tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / files.STREAMS_TABLE).to_pylist()
    assert [row["ttfb_from_command_s"] for row in rows] == [None, None]
    assert rows[1]["ttfb_from_start_s"] == 0.5


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("byte", [b"\n", b" "])
def test_a_small_file_that_holds_a_lot_is_refused(
    tmp_path: Path, suffix: str, byte: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "MIN_LIMIT_BYTES", 2**22)
    path = tmp_path / f"log{suffix}"
    path.write_bytes(PACKERS[suffix](usual_log().text() + byte * 2**25))
    assert max_content_bytes(path.stat().st_size) < 2**25
    tracemalloc.start()
    try:
        with pytest.raises(AnalysisError, match=r"holds more than \S+ MiB, the limit for its size"):
            assert all(len(lines) <= MAX_LINES for lines in LogFile(path).batches())
        # A list of a million empty lines needs eight times the memory of their text, so the bound
        # for newlines is higher.
        assert tracemalloc.get_traced_memory()[1] < (45e6 if byte == b"\n" else 15e6)
    finally:
        tracemalloc.stop()


def test_content_before_damage_in_xz_is_sound() -> None:
    """In only a few damaged files, wrong content is returned before the damage is detected.

    Smaller decompression steps return wrong content in nearly all damaged files.
    """
    rng = random.Random(7)
    data = b"".join(b"line %d %d\n" % (n, rng.getrandbits(60)) for n in range(4000))
    packed = lzma.compress(data)
    corrupt = 0
    for _ in range(40):
        damaged = bytearray(packed)
        damaged[rng.randrange(100, len(packed) - 50)] ^= 1 << rng.randrange(8)
        content = b""
        with contextlib.suppress(DamagedError):
            for piece in pieces(io.BytesIO(damaged), ".xz"):
                content += piece
        assert len(content) < len(data)
        corrupt += not data.startswith(content)
    assert corrupt < 10


def seconds_to_read(path: Path) -> float:
    begun = time.process_time()
    log = LogFile(path)
    for _ in log.batches():
        pass
    assert len(log.tail) == MAX_LINE_BYTES + 1
    assert log.bytes_read == path.stat().st_size
    return time.process_time() - begun


def test_reading_a_long_line_takes_linear_time(tmp_path: Path) -> None:
    """A reader of quadratic time takes about 4 s for a line of 64 MB, and 57 s for 256 MB."""
    path = tmp_path / "tgen.1000.stdout"
    for size in (2**24, 2**27):
        path.write_bytes(b"a" * size)
        assert seconds_to_read(path) < 0.5 + size * 10 / 2**30


def test_a_line_that_is_too_long_is_malformed(tmp_path: Path) -> None:
    lines = usual_log().text().splitlines()
    for long in (lines[0] + b"x" * 70_000, b"\0" * 70_000, b"x" * 2**21):
        report = extract_log(tmp_path, b"\n".join([*lines, long, *lines[1:2]]) + b"\n")
        (problem,) = report.problems
        assert problem.malformed_lines == 2  # the long line and a repeated heartbeat
        assert problem.examples[0].reason == "the line is longer than 65536 bytes"
        assert problem.examples[0].line == len(lines) + 1
        assert report.lines == len(lines) + 2


def test_more_streams_than_the_run_has_time_for_are_not_believed(tmp_path: Path) -> None:
    text = usual_log().text()
    report = extract_log(tmp_path, text.replace(b"stream [id=0,", b"stream [id=1080001,"))
    reason = "1080001 streams are more than a run of 1080 s has"
    assert [one.reason for one in report.problems[0].examples] == [reason]


# The format of TGen before 1.0, which torproject's OnionPerf used until 2020.
OLD = """\
2019-05-31 00:28:15 1559262495.000000 [message] [tgen-transfer.c:1508] [_tgentransfer_log] \
[transfer-{what}] transport TCP,975,localhost:127.0.0.1:16764,localhost:127.0.0.1:9000,\
server5:75.126.33.156:80,state=RESPONSEA,error=NONE transfer transfer,1,client,GET,327680,(null),0,\
state=ERROR,error={error} total-bytes-read=0 total-bytes-write=0 payload-bytes-read=0/327680 (0.00%)
"""
OTHER = "2019-05-31 00:28:15 1559262495.000000 [message] [tgen-main.c:43] [_tgenmain_run] hello\n"


def test_a_log_of_tgen_before_1_0_is_refused(tmp_path: Path) -> None:
    text = OTHER + OLD.format(what="status", error="NONE") * 50
    text += OLD.format(what="complete", error="NONE") + OLD.format(what="error", error="READ")
    with pytest.raises(AnalysisError) as refused:
        extract_log(tmp_path, text.encode())
    assert "of 53 lines of" in refused.value.message
    assert " are understood: line 2: a transfer of TGen before 1.0" in refused.value.message


@pytest.mark.parametrize(
    ("line", "lines"),
    [(OTHER, 1), (OTHER, 30_001), ("hello\n", 20_000), ("\n", 20_000), ("\0\0\n", 20_000)],
)
@pytest.mark.parametrize("suffix", ["", *PACKERS])
def test_a_log_of_which_nothing_is_understood_is_refused(
    tmp_path: Path, line: str, lines: int, suffix: str
) -> None:
    """Reading stops when the refusal is certain. The message counts the lines that were read."""
    text = (OTHER + line * (30_000 if lines > 1 else 0)).encode()
    with pytest.raises(AnalysisError, match=rf"only 0 of {lines} lines of .* are understood"):
        extract_log(tmp_path, PACKERS[suffix](text) if suffix else text, suffix)


def test_a_status_line_before_its_stream_is_ignored(tmp_path: Path) -> None:
    size = 5 * KIB * KIB
    log = LogWriter("client1").start()
    stream = log.create()
    log.status(500.0, stream, size, 400 * KIB)
    log.end(560.0, stream, 510.0, requested=size, first_byte_s=0.5, last_byte_s=40.0)
    log.heartbeat(561.0, size)
    extract_log(tmp_path, log.text())
    found = run_statistics(load_run(tmp_path / "out", LEVEL))
    assert found["web", "time_to_last_byte_p50_s"].value == 40.0
    assert "does not contain this time" in found["web", "time_to_320kib_p50_s"].reason
