"""Instructions of the engine for the guest, such as paths on the machine, and the guest's result.

The instructions do not affect results, so they are not part of a run's identity. The simulation
itself is in conf/uml.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

BOOT_FILE = "uml.boot.json"
RESULT_FILE = "uml.result.json"
LOGS_FOLDER = "uml.logs"
"""The folder to which the guest copies the output of its programs, with one folder per host. It is
separate from the folder of the final logs, because the engine appends lines to the final logs
during the simulation.
"""
TIME_MARK = "onionlab-time"
"""The prefix of a console line with the simulated time in s and the guest's free memory (bytes)."""
LOG_MARK = "onionlab-log"
"""The prefix of a console line with a watched host, the name of one of its logs, and a log line."""
END_MARK = "onionlab-end"
"""The prefix of a console line that names the guest's current action after the simulation's end."""
MARKS = (TIME_MARK, LOG_MARK, END_MARK)


@dataclass(frozen=True)
class Boot:
    """The engine's instructions. All paths are paths on the machine that runs the guest.

    run_directory: the folder that contains conf/ and that receives the logs. package_root: the
    folder that contains the package onionlab. programs: base name of each program -> path of its
    executable. calls: the library that makes system calls faster, or empty. open_files: the limit
    per process. watched: the hosts whose programs' output the guest copies to its console.
    """

    run_directory: str
    package_root: str
    python: str
    programs: Mapping[str, str]
    calls: str
    open_files: int
    watched: Sequence[str]

    def write(self, path: Path) -> None:
        """Write the instructions to a file, which the guest reads when it starts."""
        path.write_text(json.dumps(asdict(self), indent=1))


def read_boot(path: Path) -> Boot:
    """Read the file that `Boot.write` wrote."""
    return Boot(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Result:
    """The guest's report on the end of the simulation.

    message: the error, or empty if the simulation succeeded. log_tail: the last lines of the output
    of the program that failed, or of the guest's traceback.
    """

    message: str
    log_tail: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Write the result to a file atomically."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"format": 1, **asdict(self)}))
        partial.rename(path)


def read_result(path: Path) -> Result | None:
    """Read the result, or return None if the guest ended without writing a valid result."""
    try:
        data = json.loads(path.read_text())
        return Result(str(data["message"]), tuple(data["log_tail"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
