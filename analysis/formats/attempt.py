"""The state of a run in progress, and the error of a failed attempt."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from analysis.formats.format_model import FormatModel


@dataclass(frozen=True)
class RunState:
    """progress.json: the last reported state of a running simulation."""

    title: str = Field(description="level, variant and seed, for readers")
    simulated_s: float = Field(description="simulated time so far")
    stop_s: float = Field(description="simulated time at which the run ends")
    wall_s: float = Field(description="wall time so far")
    memory_bytes: int = Field(description="private memory of all its processes")
    at_s: float = Field(description="Unix time of this report")
    waiting: bool = Field(
        default=False, description="whether it is waiting for CPUs and has not started"
    )
    format: Literal[1] = Field(default=1, description="version")

    @property
    def speed(self) -> float:
        """Simulated seconds per second of wall time, so far."""
        return self.simulated_s / self.wall_s if self.wall_s > 0 else 0.0


class RunFailure(FormatModel):
    """error.json: the reason why an attempt failed."""

    format: Literal[1] = Field(default=1, description="version")
    title: str = Field(default="", description="level, variant and seed, for readers")
    message: str = Field(description="what is wrong")
    log: tuple[str, ...] = Field(default=(), description="last lines of the log with the error")
