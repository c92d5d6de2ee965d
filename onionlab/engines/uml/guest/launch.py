"""Start each program in the network of its simulated host, and describe how programs end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from onionlab.engines.uml.guest.file_systems import HOSTS
from onionlab.engines.uml.guest.wiring import enter_host

FIRST_PID = 1000
"""The number in the names of the log files of a host's first program, as in Shadow."""

LAST_LINES = 15

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    # Without these two variables, programs would use the time zone and the OpenSSL configuration of
    # the machine that runs the guest.
    "TZ": "UTC0",
    "OPENSSL_CONF": "/dev/null",
    # OpenSSL's random generator mixes in the processor's time stamp counter and random numbers.
    # With both disabled, it uses only the kernel's random numbers, which follow the seed.
    "OPENSSL_ia32cap": "~0x4000000000000010:~0x40000",
}


@dataclass(frozen=True)
class RunningProgram:
    """A started program. log, errors: the files of its standard output and standard error."""

    pid: int
    host: str
    program: str
    log: Path
    errors: Path

    def read_from(self, begin: int) -> bytes:
        """Return the standard output from byte `begin` on.

        No system call of this function fails, and it does not read the clock. If many failed calls
        or reads of the clock happened in one instant, the kernel would let simulated time pass
        (configs/uml/patches, 0002).
        """
        log = os.open(self.log, os.O_RDONLY)
        try:
            return os.pread(log, os.fstat(log).st_size - begin, begin)
        finally:
            os.close(log)

    def last_lines(self) -> list[str]:
        """Return the last lines of the standard output, then the last lines of standard error."""
        lines: list[str] = []
        for path in (self.log, self.errors):
            lines += path.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return lines


def log_file(host: str, program: str, position: int) -> Path:
    """Return the path of a program's log. position: the program's index in the host's programs."""
    return HOSTS / host / f"{program}.{FIRST_PID + position}.stdout"


def start(
    command: Sequence[str],
    *,
    host: str,
    log: Path,
    directory: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    in_network: bool = True,
) -> RunningProgram:
    """Start a program. environment: variables in addition to ENVIRONMENT.

    in_network: whether the program runs in the host's namespaces. If true, the calling process
    moves to these namespaces and stays there.
    """
    errors = log.with_suffix(".stderr")
    if in_network:
        enter_host(host)
    with log.open("wb") as output, errors.open("wb") as error_output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=error_output,
            env={**ENVIRONMENT, **environment},
        )
    # init.py reaps all children itself. Set a return code, because otherwise subprocess would warn
    # about a child that is still running.
    process.returncode = 0
    return RunningProgram(process.pid, host, log.name.rsplit(".", 2)[0], log, errors)


def describe_status(status: int) -> str:
    """Describe how a process ended, from the status of waitpid(2)."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with status {code}"
    return f"ended by signal {signal.Signals(-code).name}"
