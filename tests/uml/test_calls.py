"""Programs cannot distinguish system calls through the library calls.c from ordinary ones.

The library calls the guest's kernel as a function, without a signal (kernel patch 0010).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onionlab.engines.uml.bootcheck import IN_PROCESSES
from onionlab.engines.uml.kernel import BuiltKernel
from uml.test_kernel_real import compiled, report

pytestmark = pytest.mark.uml

SHOW = """
environment = {{"LD_PRELOAD": {calls!r}}}
program = subprocess.run({command!r}, env=environment, capture_output=True, text=True)
out["said"] = program.stdout
out["errors"] = program.stderr
"""


@pytest.fixture
def kernel(uml_kernel: BuiltKernel) -> BuiltKernel:
    if uml_kernel.ptrace_because or uml_kernel.calls is None:
        pytest.skip(f"this kernel cannot be called here: {uml_kernel.ptrace_because}")
    return uml_kernel


def run_program(
    kernel: BuiltKernel, folder: Path, *command: str, calls: bool = True, mode: str = IN_PROCESSES
) -> str:
    """Return the output of a program in a guest, with or without the library of ``calls.c``."""
    library = str(kernel.calls) if calls else ""
    answer = report(kernel, folder, SHOW.format(calls=library, command=list(command)), mode)
    assert not answer["errors"]
    return str(answer["said"])


def test_calls_preserve_registers_like_functions(kernel: BuiltKernel, tmp_path: Path) -> None:
    program = str(compiled("calls", tmp_path))
    by_calls = run_program(kernel, tmp_path, program)
    calls, signals, interrupted, wrong = (int(number) for number in re.findall(r"\d+", by_calls))
    assert calls > 5_000
    assert signals > 500
    assert interrupted > 50
    assert wrong == 0
    # System calls have exactly the same results by signals (without the library) and by ptrace (in
    # the other mode).
    assert run_program(kernel, tmp_path, program, calls=False) == by_calls
    assert run_program(kernel, tmp_path, program, mode="onionlab.inprocess=off") == by_calls
