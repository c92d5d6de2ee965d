"""history.jsonl: what the engines cost, one measurement a line, each added behind the others."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from analysis.errors import AnalysisError, problems_of
from analysis.formats.durable import make_folder, sync
from analysis.formats.format_model import LARGEST_NUMBER, FormatModel
from analysis.formats.json_files import parse_json

SHOWN_LINES = 5

Amount = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]


class BenchRepetition(FormatModel):
    """One run: what it took."""

    cpu_s: Amount = Field(description="user and system time of all processes of the simulation")
    wall_s: Amount = Field(description="wall time of the simulation")
    peak_memory_bytes: Annotated[int, Field(gt=0, le=10**18)] = Field(
        description="the largest sum of their memory, sampled every few seconds"
    )
    others_cpus: Annotated[float, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False)] = Field(
        description="how many CPUs other programs kept busy meanwhile, in the mean"
    )
    slowness: Amount | None = Field(
        default=None,
        description="how many times slower than the reference machine this one was at its "
        "engine's work, in the mean of before and after the run; null in older lines",
    )


class BenchSide(FormatModel):
    """One engine's runs of a case."""

    engine: dict[str, str] = Field(description="its identity: name, version and the like")
    programs: dict[str, str] = Field(description="program of the run -> SHA-256 of the executable")
    records: str = Field(
        description="hash of the run's record tables; several with spaces between them, where "
        "repetitions had other records"
    )
    repetitions: tuple[BenchRepetition, ...] = Field(
        min_length=1, description="in the order in which they were made"
    )


class BenchCase(FormatModel):
    """One run that was made again and again, on each engine in turn."""

    experiment: str = Field(description="its name")
    scale: float | None = Field(description="share of the full size; null: the experiment's own")
    level: str = Field(description="name of its level")
    variant: str = Field(description="name of its variant")
    seed: int = Field(description="seed of all that is drawn")
    sides: dict[str, BenchSide] = Field(
        description="name of an engine, or uml-ptrace (the embedded one by ptrace) -> its runs"
    )

    @property
    def place(self) -> tuple[str, float | None, str, str, int]:
        """What makes two cases the same."""
        return self.experiment, self.scale, self.level, self.variant, self.seed

    @property
    def title(self) -> str:
        """For people: which case it is."""
        scale = "" if self.scale is None else f" at {self.scale:g}"
        level = "" if self.level == self.experiment else f" {self.level}"
        return f"{self.experiment}{scale}{level} {self.variant} seed {self.seed}"


class BenchMeasurement(FormatModel):
    """A line of history.jsonl: what the engines cost on one machine at one time."""

    format: Literal[1] = Field(description="version")
    measured_at: str = Field(description="when it began, UTC, ISO 8601")
    project: str = Field(description="version and commit of this program")
    machine: dict[str, Any] = Field(
        description="facts by which a machine is the same: cpu, cpus, memory_bytes"
    )
    host: dict[str, Any] = Field(description="what else the machine is: kernel, python")
    before: dict[str, Amount] = Field(
        description="what its CPU took before the runs: switch_us, call_us, aes_ns_per_byte"
    )
    after: dict[str, Amount] = Field(description="the same after them")
    slowness: dict[str, Amount] = Field(
        description="engine -> how many times slower than the reference machine this one was at "
        "its work, in the mean of before, between and after the runs"
    )
    marks: tuple[str, ...] = Field(
        description="why it does not count, as where others had the CPU; empty: it does"
    )
    made_again: tuple[str, ...] = Field(
        default=(), description="what disturbed repetitions in whose place others stand"
    )
    cases: tuple[BenchCase, ...] = Field(description="what was run")


def read_bench_history(path: Path) -> list[BenchMeasurement]:
    """All measurements of a history, in their order; none where there is no file.

    A line that is none is never passed over, for what is searched would not be all that was
    measured. The file is left as it is.

    Raises:
        AnalysisError: lines that are no measurement; one error for all of them.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    found: list[BenchMeasurement] = []
    broken: list[tuple[int, str]] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(BenchMeasurement.model_validate(parse_json(line)))
        except ValidationError as error:
            broken.append((number, "; ".join(problems_of(error, "measurement"))))
        except ValueError as error:
            broken.append((number, str(error)))
    if broken:
        raise AnalysisError(*_complaint(path, broken, len(found)))
    return found


def _complaint(path: Path, broken: list[tuple[int, str]], whole: int) -> tuple[str, str]:
    """Message and hint."""
    (number, why), *others = broken
    more = ", ".join(str(other) for other, _ in others[:SHOWN_LINES])
    rest = f" and {len(others) - SHOWN_LINES} more" if len(others) > SHOWN_LINES else ""
    also = f" (nor are lines {more}{rest})" if others else ""
    return (
        f"{path}: line {number} is no measurement{also}: {why}",
        f"mend it, or move it out of the file; nothing was changed, and the {whole} others are "
        "whole",
    )


def add_to_bench_history(path: Path, measurement: BenchMeasurement) -> None:
    """Add a line, whole or not at all.

    Raises:
        OSError: it cannot be written; then the file is as it was.
    """
    make_folder(path.parent)
    text = json.dumps(measurement.content(), sort_keys=True, separators=(",", ":")) + "\n"
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size_bytes = os.fstat(descriptor).st_size
        # An editor may have left the last line without its end.
        if size_bytes and os.pread(descriptor, 1, size_bytes - 1) != b"\n":
            text = f"\n{text}"
        try:
            _write_all(descriptor, text.encode())
            os.fsync(descriptor)
            sync(path.parent)
        except BaseException:
            os.ftruncate(descriptor, size_bytes)
            raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
