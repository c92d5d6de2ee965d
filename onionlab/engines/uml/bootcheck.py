"""Check that a new kernel boots, keeps simulated time, and ends by itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from analysis.formats.scratch import scratch_folder
from onionlab.engines.uml.memory import roomiest_memory_folder
from onionlab.errors import UserError

TIMEOUT_S = 120.0
MEMORY_MIB = 192
START_UNIX_S = 946684800
SLEEP_S = 1000.0
MARK = "onionlab-boot-check "
"""The prefix of the console line with the guest's report."""

IN_PROCESSES = "onionlab.inprocess=on"
"""The boot parameter that makes the guest's kernel run inside the guest's processes instead of
tracing them with ptrace (patch 0009). Kernels without this patch ignore the parameter.
"""

_TAKES_PTRACE = re.compile(r"^The kernel takes ptrace: (.*)$", re.MULTILINE)

MAGIC_POWER_OFF = 0x4321FEDC  # reboot(2)

# The program of the guest's first process, which the host's Python interpreter executes.
GUEST = f"""\
import ctypes, json, time
libc = ctypes.CDLL(None)
libc.mount(b"proc", b"/proc", b"proc", 0, None)
def clock():
    return time.clock_gettime(time.CLOCK_REALTIME)
started = clock()
time.sleep({SLEEP_S})
slept = clock() - started
with open("/proc/version") as stream:
    version = stream.read()
print({MARK!r} + json.dumps(dict(started=started, slept=slept, version=version)), flush=True)
libc.reboot({MAGIC_POWER_OFF})
"""


@dataclass(frozen=True)
class BootReport:
    """The result of a boot check: its duration, the guest's report, and the console's output."""

    wall_s: float
    report: dict[str, Any]
    output: str


def ptrace_reason(output: str) -> str:
    """Return why a kernel uses ptrace despite IN_PROCESSES, or "" if it does not use ptrace.

    output: the output on the console. A kernel that uses ptrace prints the reason there.
    """
    found = _TAKES_PTRACE.search(output)
    return found[1].strip() if found else ""


def boot_command(
    kernel: Path,
    *parameters: str,
    memory_mib: int,
    start_unix_s: int,
    state: str,
    root: Literal["ro", "rw"],
    script: Sequence[str | Path],
    random_addresses: bool = True,
) -> list[str]:
    """Return a command line that boots a kernel with simulated time and the host's file system.

    parameters: further boot parameters. state: the folder for the kernel's own files. root: whether
    to mount the root file system read-only ("ro") or writable ("rw"). script: the arguments of
    Python, the first process. random_addresses: whether programs are loaded at random addresses.
    """
    return [
        str(kernel),
        f"mem={memory_mib}M",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        root,
        "time-travel=inf-cpu",
        f"time-travel-start={start_unix_s * 10**9}",
        "con=null",
        "con0=fd:0,fd:1",
        "quiet",
        *([] if random_addresses else ["norandmaps"]),
        f"uml_dir={state}",
        *parameters,
        f"init={_quote(Path(sys.executable).resolve())}",
        "--",
        *map(_quote, script),
    ]


def _quote(argument: str | Path) -> str:
    """Quote an argument, because the kernel splits its command line at spaces.

    Double quotes and line breaks are not escaped, because no argument contains them: the set-up
    rejects a checkout with such a path.
    """
    text = str(argument)
    return f'"{text}"' if " " in text or "\t" in text else text


def check_boot(
    kernel: Path, log: Path, *, guest: str = GUEST, arguments: tuple[str, ...] = ()
) -> BootReport:
    """Boot ``kernel`` with a first process that sleeps, reports and powers off.

    log: receives the guest's console. guest: the Python program of the first process. Raises
    UserError if the kernel does not boot, does not keep simulated time (checked only with GUEST),
    or does not end.
    """
    started = time.monotonic()
    with scratch_folder(roomiest_memory_folder(), "onionlab-boot-") as place:
        script = place / "init.py"
        script.write_text(guest, encoding="utf-8")
        command = boot_command(
            kernel,
            *arguments,
            memory_mib=MEMORY_MIB,
            start_unix_s=START_UNIX_S,
            state=str(place),
            root="rw",
            script=("-SE", script),
        )
        cpu = str(min(os.sched_getaffinity(0)))
        if shutil.which("taskset") is not None:
            command = ["taskset", "-c", cpu, *command]
        output = _run(command, place, log)
    report = next(
        (
            json.loads(line.partition(MARK)[2])
            for line in output.splitlines()
            if line.startswith(MARK)
        ),
        None,
    )
    hint = f"Its output: {log}"
    if report is None:
        raise UserError("the new kernel does not boot", _tail(output) + hint)
    if guest is GUEST and not (
        SLEEP_S <= report["slept"] < SLEEP_S + 1
        and START_UNIX_S <= report["started"] < START_UNIX_S + 60
    ):
        raise UserError(
            "the new kernel does not keep simulated time: it started at "
            f"{report['started']} and slept {report['slept']} s instead of {SLEEP_S} s",
            hint,
        )
    return BootReport(time.monotonic() - started, report, output)


def _run(command: list[str], place: Path, log: Path) -> str:
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", ""), "HOME": "/", "TMPDIR": str(place)},
            # A new session is also a new process group, which contains the kernel and its children,
            # the guest's processes. killpg below kills the whole group.
            start_new_session=True,
        )
        try:
            process.wait(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise UserError(
                f"the new kernel has not ended after {TIMEOUT_S:.0f} s", f"Its output: {log}"
            ) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
    return log.read_text(encoding="utf-8", errors="replace")


def _tail(output: str) -> str:
    lines = output.strip().splitlines()
    panic = [line for line in lines[:-15] if "Kernel panic" in line]
    return "".join(f"  {line}\n" for line in panic + lines[-15:])
