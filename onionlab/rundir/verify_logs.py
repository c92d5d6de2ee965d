"""Check that the clients' logs of a finished simulation reach its end."""

from __future__ import annotations

import os
from pathlib import Path

from analysis.formats import files
from analysis.formats.run_files import RunClock, read_clients, read_clock
from analysis.records.tgenlog import TgenLog
from onionlab.rundir.verify_tor import LAST_LINES, RunRefusedError, format_first_hosts

TAIL_BYTES = 1 << 16
"""The size of a log's end that contains several heartbeats at log level message."""


def verify_log_ends(run_directory: Path) -> None:
    """Check that each client's TGen logs reach the end of the run or of TGen.

    Raises RunRefusedError with the clients' names and the last lines of the first one's log.
    """
    clock = read_clock(run_directory)
    problems: dict[str, str] = {}
    last_lines: list[bytes] = []
    for host in sorted(read_clients(run_directory)):
        for path in sorted((run_directory / files.HOSTS / host).glob("tgen*.stdout")):
            lines = _last_lines(path)
            problem = _early_end(lines, clock)
            if problem is not None:
                last_lines = last_lines or lines
                problems.setdefault(host, problem)
    if problems:
        first = next(iter(problems))
        names = format_first_hosts(list(problems))
        raise RunRefusedError(
            f"{len(problems)} clients have an incomplete log ({names}). "
            f"The log of {first}: {problems[first]}",
            [line.decode(errors="replace")[:200] for line in last_lines[-LAST_LINES:]],
        )


def _early_end(lines: list[bytes], clock: RunClock) -> str | None:
    log = TgenLog()
    log.feed(lines)
    return log.early_end(clock)


def _last_lines(path: Path) -> list[bytes]:
    """Return the last complete lines of a log, with at least two heartbeats if it has them."""
    with path.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
        file.seek(begin)
        lines = file.read().split(b"\n")[bool(begin) : -1]
        if begin and sum(b"[driver-heartbeat]" in line for line in lines) < 2:
            file.seek(0)
            lines = file.read().split(b"\n")[:-1]
    return lines
