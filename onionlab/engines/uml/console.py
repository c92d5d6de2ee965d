"""Read a guest's console, which shows simulated time, log lines, and the reason for a failure."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from onionlab.engines.base import EngineFailureError
from onionlab.engines.following import ExitInfo
from onionlab.engines.uml.guest.boot import END_MARK, LOG_MARK, MARKS, TIME_MARK, Result

LOG_TAIL_LINES = 25
MAX_POLL_GAP_S = 10.0
"""The maximum time that one gap between two polls adds to the guest's time without progress.

A longer gap means that this process was stopped, and the guest as well.
"""
MAX_LOW_MEMORY = 0.05
"""The share of free memory below which the guest may spend all its time on reclaiming memory."""

_MORE_MEMORY = "Give it more: `engine: {uml: {memory: ...}}` in the experiment"

_END = re.compile(rb"^" + END_MARK.encode() + rb" ([^\r\n]*)\r?\n", re.MULTILINE)
_TIME = re.compile(rb"^" + TIME_MARK.encode() + rb" (\d+) (\d+)\r?\n", re.MULTILINE)
_LINE = re.compile(
    rb"^" + LOG_MARK.encode() + rb" ([\w-]+) ([\w.+-]+) ([^\r\n]*)\r?\n", re.MULTILINE
)
_PANIC = re.compile(r"Kernel panic - not syncing: (.*)")
# Messages of a kernel that ran out of memory.
_OUT_OF_MEMORY = ("panic_on_oom", "Out of memory")


@dataclass
class GuestWatch:
    """Follows a guest's simulated time and detects if it does not advance.

    log: the file with the guest's console. hosts: the folder to which the logs of watched hosts are
    copied during the simulation (see _move_logs in engine.py). timeout_s: the maximum wall-clock
    time without progress. memory_bytes: the guest's memory.
    """

    log: Path
    hosts: Path
    timeout_s: float
    memory_bytes: int
    simulated_s: float = 0.0
    _free_bytes: int | None = None
    _doing: str = ""
    _offset: int = 0
    _polled_wall_s: float = field(default_factory=lambda: time.monotonic())
    _still_s: float = 0.0

    def poll(self) -> float:
        """Return the simulated time in s.

        Raises EngineFailureError if the guest has made no progress for `timeout_s`.
        """
        now_wall_s = time.monotonic()
        self._still_s += min(now_wall_s - self._polled_wall_s, MAX_POLL_GAP_S)
        self._polled_wall_s = now_wall_s
        with self.log.open("rb") as lines:
            lines.seek(self._offset)
            new = lines.read()
        end = new.rfind(b"\n") + 1
        self._offset += end
        self._add_lines(new[:end])
        for found in _TIME.finditer(new[:end]):
            self.simulated_s = float(found[1])
            self._free_bytes = int(found[2])
            self._still_s = 0.0
        for found in _END.finditer(new[:end]):
            self._doing = found[1].decode(errors="replace")
            self._still_s = 0.0
        if self._still_s > self.timeout_s:
            self._fail(printed=self._offset > 0 or bool(new))
        return self.simulated_s

    def _fail(self, *, printed: bool) -> NoReturn:
        still_s = f"{self._still_s:.0f} s"
        if not printed:
            message = f"the guest has printed nothing for {still_s}: it does not start"
        elif self._doing:
            message = (
                f"the simulated time is over, but the guest does not end: {self._doing} has taken "
                f"{still_s}"
            )
        else:
            message = (
                f"simulated time does not advance: after {self.simulated_s:.0f} s, the next "
                f"second has not ended for {still_s}. {self._likely_cause()}"
            )
        raise EngineFailureError(message, log_tail(self.log))

    def _likely_cause(self) -> str:
        if self._free_bytes is None or self._free_bytes > MAX_LOW_MEMORY * self.memory_bytes:
            return "A program that never sleeps causes this"
        return (
            f"The guest is short of memory: {self._free_bytes // 2**20} of "
            f"{self.memory_bytes // 2**20} MiB were free. {_MORE_MEMORY}"
        )

    def _add_lines(self, said: bytes) -> None:
        """Append each log line that the console shows to its host's log. Ignore write errors."""
        for host, name, line in _LINE.findall(said):
            with contextlib.suppress(OSError):
                folder = self.hosts / host.decode()
                folder.mkdir(parents=True, exist_ok=True)
                with (folder / name.decode()).open("ab") as log:
                    log.write(line + b"\n")


def check_result(result: Result | None, log: Path, ended: ExitInfo) -> None:
    """Raise EngineFailureError if the guest did not end successfully.

    log: the file with the output on the guest's console.
    """
    if result is None:
        tail = log_tail(log)
        panic = next((found[1] for line in tail if (found := _PANIC.search(line))), None)
        if panic is None:
            message = f"the guest ended prematurely: its kernel {ended}"
        elif any(sign in line for sign in _OUT_OF_MEMORY for line in tail):
            message = f"the guest ran out of memory. {_MORE_MEMORY}"
        else:
            message = f"the guest's kernel panicked: {panic}"
        raise EngineFailureError(message, tail)
    if result.message:
        raise EngineFailureError(result.message, result.log_tail or log_tail(log))


def log_tail(log: Path) -> list[str]:
    """Return the last lines on the guest's console, except those that begin with one of `MARKS`.

    The line that reports a kernel panic is returned even if it is not among the last lines, because
    a long stack trace may follow it.
    """
    with log.open("rb") as lines:
        lines.seek(max(0, log.stat().st_size - 200_000))
        text = lines.read().decode(errors="replace").splitlines()
    said = [line for line in text if line.strip() and not line.startswith(MARKS)]
    panics = [line for line in said[:-LOG_TAIL_LINES] if _PANIC.search(line)]
    return panics + said[-LOG_TAIL_LINES:]
