"""System calls as calls of a function (patch 0010, calls.c): cheaper, and nothing else changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onionlab.engines.processes import children_cpu_s
from onionlab.engines.uml.bootcheck import IN_PROCESSES
from onionlab.engines.uml.engine import UmlEngine
from onionlab.engines.uml.guest.file_systems import CALLS
from onionlab.engines.uml.kernel import BuiltKernel
from uml.guest_support import Net, run_guest, said
from uml.test_kernel_real import compiled, report

pytestmark = pytest.mark.uml

SHOW = """
environment = {{"LD_PRELOAD": {calls!r}}}
program = subprocess.run({command!r}, env=environment, capture_output=True, text=True)
out["said"] = program.stdout
out["errors"] = program.stderr
"""

# Through the C library, as Python's own os.read is.
READS = """
import os
end = os.open("/dev/zero", os.O_RDONLY)
[os.read(end, 1) for _ in range(200_000)]
"""

ADDRESS = """
import ctypes
value_of = ctypes.CDLL(None).getauxval
value_of.restype, value_of.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
AT_SYSINFO_EHDR = 33
print(ctypes.c_ulong.from_address(value_of(AT_SYSINFO_EHDR) - 2 * 4096 + 200).value)
"""


@pytest.fixture
def kernel(uml_kernel: BuiltKernel) -> BuiltKernel:
    if uml_kernel.ptrace_because or uml_kernel.calls is None:
        pytest.skip(f"this kernel cannot be called here: {uml_kernel.ptrace_because}")
    return uml_kernel


def run_program(
    kernel: BuiltKernel, folder: Path, *command: str, calls: bool = True, mode: str = IN_PROCESSES
) -> str:
    """What a program prints in a guest, with and without the library."""
    library = str(kernel.calls) if calls else ""
    answer = report(kernel, folder, SHOW.format(calls=library, command=list(command)), mode)
    assert not answer["errors"]
    return str(answer["said"])


def test_functions_keep_what_functions_keep(kernel: BuiltKernel, tmp_path: Path) -> None:
    program = str(compiled("calls", tmp_path))
    by_calls = run_program(kernel, tmp_path, program)
    calls, signals, interrupted, wrong = (int(number) for number in re.findall(r"\d+", by_calls))
    assert calls > 5_000
    assert signals > 500
    assert interrupted > 50
    assert wrong == 0
    # The same by signals and by ptrace, to the last count.
    assert run_program(kernel, tmp_path, program, calls=False) == by_calls
    assert run_program(kernel, tmp_path, program, mode="onionlab.inprocess=off") == by_calls


def test_the_kernel_tells_where_it_is_called(kernel: BuiltKernel, tmp_path: Path) -> None:
    python = ("/usr/bin/python3", "-SEc", ADDRESS)
    assert int(run_program(kernel, tmp_path, *python)) > 0x60000000
    assert int(run_program(kernel, tmp_path, *python, mode="onionlab.inprocess=off")) == 0


@pytest.mark.slow
def test_a_call_costs_less_than_a_signal(kernel: BuiltKernel, tmp_path: Path) -> None:
    def cpu_s(code: str, *, calls: bool) -> float:
        before_s = children_cpu_s()
        run_program(kernel, tmp_path, "/usr/bin/python3", "-SEc", code, calls=calls)
        return children_cpu_s() - before_s

    by_call_s = cpu_s(READS, calls=True) - cpu_s("", calls=True)
    by_signal_s = cpu_s(READS, calls=False) - cpu_s("", calls=False)
    assert by_call_s < 0.5 * by_signal_s


def test_programs_of_hosts_call(kernel: BuiltKernel, tmp_path: Path, uml_engine: UmlEngine) -> None:
    net = Net()
    net.host("a")
    net.run("a", "facts")
    run_guest(tmp_path, uml_engine, net, stop_s=20)
    (facts,) = said(tmp_path, "a")
    assert facts["library"] == f"{CALLS}/calls.so"
