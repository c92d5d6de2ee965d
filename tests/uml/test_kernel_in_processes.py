"""Programs behave the same in both modes in which the guest's kernel handles their system calls.

The kernel runs inside the programs' host processes (kernel patch 0009), or controls them by ptrace.
The library calls.c calls the kernel as a function, without a signal (kernel patch 0010). Programs
cannot distinguish such system calls from ordinary ones.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import re
import struct
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from onionlab.engines.uml.bootcheck import IN_PROCESSES, check_boot, ptrace_reason
from onionlab.engines.uml.kernel import IN_PROCESSES_PATCH, BuiltKernel
from uml.test_kernel_real import CODA, MODES, PRELUDE, RANDOMNESS, compiled, report

pytestmark = pytest.mark.uml

# This program uses threads, mappings and alarms, and its processes end in different ways.
PROCESSES = """
import mmap, signal, threading
out["ends"] = []
for code in ("pass", "import os; os.abort()", "import ctypes; ctypes.string_at(8)", "1 / 0"):
    ended = subprocess.run([sys.executable, "-SEc", code], capture_output=True)
    out["ends"].append(ended.returncode)
children = []
for i in range(40):
    child = os.fork()
    if child == 0:
        time.sleep(i % 7 / 100)
        os._exit(i)
    children.append(child)
os.kill(children[-1], signal.SIGKILL)
out["children"] = [os.waitpid(child, 0)[1] for child in children]
counts = [0] * 8
def count(i):
    for _ in range(300):
        counts[i] += 1
        os.sched_yield()
threads = [threading.Thread(target=count, args=(i,)) for i in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
out["counts"] = counts
for _ in range(30):
    memory = mmap.mmap(-1, 1 << 20)
    memory[::4096] = b"x" * 256
    memory.close()
alarms = []
signal.signal(signal.SIGALRM, lambda *_: alarms.append(time.monotonic_ns()))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
while len(alarms) < 5:
    signal.pause()
signal.setitimer(signal.ITIMER_REAL, 0)
out["alarms"] = [later - alarms[0] for later in alarms]
"""

# This program tries to map memory at the kernel's address. 0x32 is MAP_FIXED | MAP_PRIVATE |
# MAP_ANONYMOUS.
ITS_PLACE = """
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
out["mapped"] = libc.mmap(ctypes.c_void_p(0x60000000), ctypes.c_size_t(1 << 20), 3, 0x32, -1, 0)
out["errno"] = ctypes.get_errno()
"""


@pytest.fixture
def kernel(uml_kernel: BuiltKernel) -> BuiltKernel:
    if uml_kernel.ptrace_because or IN_PROCESSES_PATCH not in uml_kernel.patches:
        pytest.skip(f"this kernel takes ptrace here: {uml_kernel.ptrace_because}")
    return uml_kernel


@pytest.mark.parametrize("guest", [RANDOMNESS, PROCESSES], ids=["randomness", "processes"])
def test_programs_see_the_same_as_with_ptrace(
    kernel: BuiltKernel, tmp_path: Path, guest: str
) -> None:
    seed = "onionlab.seed=00ff10"
    first = report(kernel, tmp_path, guest, seed, IN_PROCESSES)
    assert first == report(kernel, tmp_path, guest, seed, IN_PROCESSES)
    assert first == report(kernel, tmp_path, guest, seed)


@MODES
def test_programs_cannot_map_memory_over_the_kernel(
    kernel: BuiltKernel, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    said = report(kernel, tmp_path, ITS_PLACE, *mode)
    assert (said["mapped"], said["errno"]) == (2**64 - 1, 12)


def boot_without_dispatch(kernel: Path, folder: Path, said: Connection) -> None:
    """Boot a kernel while prctl(PR_SET_SYSCALL_USER_DISPATCH) fails, as in some sandboxes.

    Send the reason why the kernel uses ptrace, or None if prctl cannot be made to fail here.
    """

    def line(code: int, yes: int, no: int, value: int) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    load, equal, result = 0x20, 0x15, 0x06
    lines = [
        line(load, 0, 0, 0),  # the call's number
        line(equal, 0, 3, 157),  # prctl
        line(load, 0, 0, 16),  # its first argument
        line(equal, 0, 1, 59),
        line(result, 0, 0, 0x00050000 | 22),  # EINVAL
        line(result, 0, 0, 0x7FFF0000),
    ]
    code = ctypes.create_string_buffer(b"".join(lines))
    program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    refused = libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0)
    if refused:
        said.send(None)
        return
    output = check_boot(
        kernel, folder / "boot.log", guest=PRELUDE + CODA, arguments=(IN_PROCESSES,)
    ).output
    said.send(ptrace_reason(output))


def test_ptrace_is_used_without_syscall_user_dispatch(kernel: BuiltKernel, tmp_path: Path) -> None:
    hears, said = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("spawn")
    runner = context.Process(target=boot_without_dispatch, args=(kernel.path, tmp_path, said))
    runner.start()
    said.close()
    answer = hears.recv()
    runner.join()
    if answer is None:
        pytest.skip("no filter of system calls can be set up here")
    assert answer == "the host has no syscall user dispatch"


SHOW = """
environment = {{"LD_PRELOAD": {calls!r}}}
program = subprocess.run({command!r}, env=environment, capture_output=True, text=True)
out["said"] = program.stdout
out["errors"] = program.stderr
"""


def test_calls_preserve_registers_like_functions(kernel: BuiltKernel, tmp_path: Path) -> None:
    if kernel.calls is None:
        pytest.skip("this kernel cannot be called as a function")
    command = [str(compiled("calls", tmp_path))]

    def said(library: str = "", mode: str = IN_PROCESSES) -> str:
        answer = report(kernel, tmp_path, SHOW.format(calls=library, command=command), mode)
        assert not answer["errors"]
        return str(answer["said"])

    by_calls = said(str(kernel.calls))
    calls, signals, interrupted, wrong = (int(number) for number in re.findall(r"\d+", by_calls))
    assert calls > 5_000
    assert signals > 500
    assert interrupted > 50
    assert wrong == 0
    # System calls have exactly the same results by signals (without the library) and by ptrace (in
    # the other mode).
    assert said() == by_calls
    assert said(str(kernel.calls), "onionlab.inprocess=off") == by_calls
