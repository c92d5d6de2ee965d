"""What a run says of itself while it is made, and what it leaves where it fails."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from analysis.formats.format_model import FormatModel


@dataclass(frozen=True)
class RunState:
    """progress.json: what a running simulation last said of itself."""

    title: str = Field(description="level, variant and seed, for people")
    simulated_s: float = Field(description="simulated time so far")
    stop_s: float = Field(description="simulated time at which the run ends")
    wall_s: float = Field(description="wall time so far")
    memory_bytes: int = Field(description="private memory of all its processes")
    at_s: float = Field(description="Unix time at which it said so")
    waiting: bool = Field(default=False, description="whether it waits for CPUs and has not begun")
    format: Literal[1] = Field(default=1, description="version")

    @property
    def speed(self) -> float:
        """Simulated seconds per second of wall time, so far."""
        return self.simulated_s / self.wall_s if self.wall_s > 0 else 0.0


class RunFailure(FormatModel):
    """error.json: why an attempt failed."""

    format: Literal[1] = Field(default=1, description="version")
    title: str = Field(default="", description="level, variant and seed, for people")
    message: str = Field(description="what is wrong")
    log: tuple[str, ...] = Field(default=(), description="last lines of the log that tells it")
