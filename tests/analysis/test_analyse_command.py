"""`onionlab analyse` on damaged logs names the file and says which of its lines do not count."""

from __future__ import annotations

import fcntl
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from analysis_synthetic import digests
from celltrace_synthetic import write_traced_run

from analysis.formats.files import RECORDS, TRACE_COUNTS
from analysis.formats.record_files import ParseReport, read_trace_counts
from onionlab.cli import main

HOSTS = Path("shadow.data") / "hosts"
TGEN = HOSTS / "web1client" / "tgen.1000.stdout"
TRACE = HOSTS / "middle1" / "cells"


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    folder = tmp_path / "0123456789abcdef"
    write_traced_run(folder)
    return folder


Damage = Callable[[bytes], bytes]


def analyse(capfd: pytest.CaptureFixture[str], run_directory: Path) -> tuple[int, str, str]:
    status = main(["analyse", "--run-directory", str(run_directory)])
    out, err = capfd.readouterr()
    return status, out, err


def cut(content: bytes) -> bytes:
    return content[: len(content) * 6 // 10 + 3]


def corrupt(content: bytes) -> bytes:
    """Overwrite the middle of the file, across several lines or records, with random bytes."""
    middle = len(content) // 2
    return content[:middle] + random.Random(1).randbytes(400) + content[middle + 400 :]


def headless(content: bytes) -> bytes:
    return random.Random(2).randbytes(64) + content[64:]


def test_a_run_is_locked_while_its_records_are_extracted(
    run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock, `unpack` could read incomplete records."""
    (run_directory.parent / ".locks").mkdir()

    def extract(run: Path, out: Path) -> ParseReport:
        with (run.parent / ".locks" / run.name).open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return ParseReport()

    monkeypatch.setattr("onionlab.commands.analyse.is_traced", lambda run: False)
    monkeypatch.setattr("onionlab.commands.analyse.extract", extract)
    monkeypatch.chdir(run_directory)
    assert main(["analyse", "--run-directory", "."]) == 0


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        (TGEN, cut, "the last line is cut"),
        (TGEN, corrupt, "malformed lines"),
        (TGEN, headless, "its beginning is missing; line 1: not a line of tgen's log"),
        (TRACE, cut, "bytes of an incomplete record"),
        (TRACE, corrupt, "invalid records, the first at byte"),
    ],
)
def test_ignored_lines_are_reported_with_their_file(
    run_directory: Path, capfd: pytest.CaptureFixture[str], file: Path, damage: Damage, said: str
) -> None:
    path = run_directory / file
    path.write_bytes(damage(path.read_bytes()))
    status, out, err = analyse(capfd, run_directory)
    assert (status, err) == (0, "")
    line = "; ".join(part.strip() for part in out.splitlines()[1:])
    assert said in line
    assert line.startswith("trace of middle1: " if file == TRACE else f"{TGEN}: ")
    counts = read_trace_counts(run_directory / RECORDS / TRACE_COUNTS)
    assert counts.not_counted("middle") == (line if file == TRACE else "")
    assert counts.not_counted("guard") == ""


def test_an_unreadable_log_is_an_error_and_keeps_the_old_records(
    run_directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, err = analyse(capfd, run_directory)
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert out.endswith("0 malformed lines, 0 cut logs\n")
    records = digests(run_directory / RECORDS)
    # The logs of TGen are read before the traces. So this error occurs after TGen's tables have
    # been written.
    path = run_directory / TRACE
    path.write_bytes(headless(path.read_bytes()))
    status, out, err = analyse(capfd, run_directory)
    assert (status, out) == (2, "")
    assert "cells is not a cell trace" in err
    assert digests(run_directory / RECORDS) == records
