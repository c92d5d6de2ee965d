"""How fast this machine is at what simulations spend their time on, measured in about a second."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from pydantic.dataclasses import dataclass

PROBE = Path(__file__).with_name("probe.py")
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Calibration:
    """CPU time of the pieces that runs are made of (probe.py measures them)."""

    switch_us: float = Field(gt=0, description="a switch of processes, with a byte through a pipe")
    call_us: float = Field(gt=0, description="a system call that does nothing")
    aes_ns_per_byte: float = Field(gt=0, description="AES-128 in counter mode, of one byte")


MEASURES = ("switch_us", "call_us", "aes_ns_per_byte")


class NoCalibrationError(Exception):
    """The machine could not be measured; says why."""


def calibrate(cpus: Sequence[int]) -> Calibration:
    """Measure some CPUs, all at once, as runs side by side would use them; the mean of them.

    Two CPUs may be one core, and then each is slower while the other works. Raises
    NoCalibrationError.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-I", str(PROBE), str(cpu)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for cpu in cpus
    ]
    try:
        found = [_answer(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return Calibration(
        **{name: statistics.geometric_mean(one[name] for one in found) for name in MEASURES}
    )


def median_of(found: Sequence[Calibration]) -> Calibration:
    """Each measure's median."""
    return Calibration(
        **{name: statistics.median(getattr(one, name) for one in found) for name in MEASURES}
    )


def _answer(process: subprocess.Popen[str]) -> dict[str, float]:
    try:
        text, _ = process.communicate(timeout=PATIENCE_S)
        found = json.loads(text)
        return {name: float(found[name]) for name in MEASURES}
    except subprocess.TimeoutExpired as error:
        raise NoCalibrationError(f"it took more than {PATIENCE_S:.0f} s") from error
    except (ValueError, KeyError, TypeError) as error:
        raise NoCalibrationError("the program that measures it failed") from error


def cpus_of_runs(side_by_side: int) -> list[int]:
    """The CPUs that so many simulations would take: the first that this process may use."""
    return sorted(os.sched_getaffinity(0))[: max(1, side_by_side)]
