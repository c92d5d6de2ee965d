"""What the engine tells the guest beyond the simulation itself: where things are on this machine.

Nothing of it bears on results, so it is no part of a run's identity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

BOOT_FILE = "uml.boot.json"
RESULT_FILE = "uml.result.json"
LOGS_FOLDER = "uml.logs"
"""Where the guest leaves what its programs printed, in a folder for each host. Not where they are
read: there the engine adds what the guest repeats on its console, at a time of its own."""
TIME_MARK = "onionlab-time"
"""Begins a line on the guest's console: simulated seconds, and the guest's free memory in bytes."""
LOG_MARK = "onionlab-log"
"""Likewise: a watched host, the name of a log of its, and a line of that."""
END_MARK = "onionlab-end"
"""Likewise: what the guest does once the simulated time is over, at each step of it."""
MARKS = (TIME_MARK, LOG_MARK, END_MARK)


@dataclass(frozen=True)
class Boot:
    """Paths are the host's.

    run_directory: where conf/ stands and logs go; package_root: the folder that holds the package
    onionlab; programs: base name -> executable; calls: the library by which programs call the
    kernel, or empty; watched: hosts whose programs' output the guest repeats on its console.
    """

    run_directory: str
    package_root: str
    python: str
    programs: Mapping[str, str]
    calls: str
    open_files: int
    watched: Sequence[str]

    def write(self, path: Path) -> None:
        """Write the file that the guest reads first."""
        path.write_text(json.dumps(asdict(self), indent=1))


def read_boot(path: Path) -> Boot:
    """Read it."""
    return Boot(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Result:
    """How the simulation ended, in the guest's own words. message is empty where all went well."""

    message: str
    log_tail: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"format": 1, **asdict(self)}))
        partial.rename(path)


def read_result(path: Path) -> Result | None:
    """Read it; None where the guest ended without one."""
    try:
        data = json.loads(path.read_text())
        return Result(str(data["message"]), tuple(data["log_tail"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
