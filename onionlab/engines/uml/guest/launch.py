"""Programs of hosts: started in their host's network at their time, and watched."""

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
"""Of the names of log files, which are those that Shadow gives: the first program of a host."""

LAST_LINES = 15

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    # Programs would otherwise read the host's own time zone and configuration of OpenSSL.
    "TZ": "UTC0",
    "OPENSSL_CONF": "/dev/null",
    # OpenSSL's random generator mixes in the processor's time stamp counter and its random numbers.
    # Without these two abilities it has only what the kernel gives, and that follows the seed.
    "OPENSSL_ia32cap": "~0x4000000000000010:~0x40000",
}


@dataclass(frozen=True)
class Running:
    """A program that was started. log: its standard output; errors: its standard error."""

    pid: int
    host: str
    program: str
    log: Path
    errors: Path

    def read_from(self, begin: int) -> bytes:
        """Return what it has printed from that byte on.

        Without a call that fails and without a look at the clock: many of them in one moment would
        take simulated time (configs/uml/patches).
        """
        log = os.open(self.log, os.O_RDONLY)
        try:
            return os.pread(log, os.fstat(log).st_size - begin, begin)
        finally:
            os.close(log)

    def last_words(self) -> list[str]:
        """Return the last lines that it wrote, errors last."""
        lines: list[str] = []
        for path in (self.log, self.errors):
            lines += path.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return lines


def log_file(host: str, program: str, position: int) -> Path:
    """Return where the program at this position of a host's list writes to."""
    return HOSTS / host / f"{program}.{FIRST_PID + position}.stdout"


def start(
    command: Sequence[str],
    *,
    host: str,
    log: Path,
    directory: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    in_network: bool = True,
) -> Running:
    """Start a program. The caller moves to the host, and stays there."""
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
    # Reaped by whoever waits for all children; subprocess is not to complain that it did not.
    process.returncode = 0
    return Running(process.pid, host, log.name.rsplit(".", 2)[0], log, errors)


def describe_status(status: int) -> str:
    """Say how a process ended, from what waitpid(2) returned."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"with status {code}"
    return f"by signal {signal.Signals(-code).name}"
