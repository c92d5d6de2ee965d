"""plan.json: which runs an experiment has, and all that a job process needs to make one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import read_as

MAKE_ANEW = "make it anew: make generate NAME=..."


@dataclass(frozen=True)
class Request:
    """What the user asked for, as given on the command line."""

    experiment: str = Field(description="name of the experiment, or path of its file")
    scale: float | None = Field(
        default=None, description="share of the full size; null: the experiment's own"
    )
    seeds: int | list[int] | None = Field(
        default=None,
        description="networks: a number n (seeds 1 to n), a list, or null: the experiment's own",
    )
    variants: tuple[str, ...] = Field(
        default=(), description="some of the experiment's, in its order; empty: all"
    )
    engine: str = Field(default="auto", description="name of the engine, or auto")
    shadow: str | None = Field(default=None, description="path of Shadow; null: look for it")
    tgen: str | None = Field(default=None, description="path of TGen; null: look for it")
    repeats: int | None = Field(
        default=None, description="runs on each network; null: the experiment's own"
    )


def network_words(seed: int, repeat: int) -> str:
    """Return a run's network and repeat for people; a first repeat is not named."""
    return f"seed {seed}" if repeat == 1 else f"seed {seed} repeat {repeat}"


@dataclass(frozen=True)
class PlannedRun:
    """One run: its name in the store and what it is in this experiment."""

    run_id: str = Field(description="its name in the store")
    level: str = Field(description="name of its level")
    variant: str = Field(description="name of its variant")
    seed: int = Field(description="its network: the seed of all that the network's runs share")
    repeat: int = Field(default=1, description="which of the runs on its network it is, from 1 on")

    @property
    def title(self) -> str:
        """For people: which run it is."""
        return f"{self.level} {self.variant} {network_words(self.seed, self.repeat)}"


@dataclass(frozen=True)
class Resources:
    """What one run needs, estimated."""

    memory_bytes: int = Field(description="private memory at its peak")
    disk_bytes: int = Field(description="what its directory holds at its end")
    processes: int = Field(description="processes of the simulation, each with its threads")


class PlanFile(FormatModel):
    """plan.json: which runs an experiment has, and all that a job process needs to make one."""

    format: Literal[1, 2] = Field(description="version; 1 has the absolute path of the store")
    request: Request = Field(description="what was asked for")
    runs: tuple[PlannedRun, ...] = Field(description="by seed, repeat, level and variant")
    store: str = Field(description="path of the run store, from the folder of this file")
    cpus_per_run: Annotated[int, Field(ge=0)] = Field(description="CPUs that one run has to itself")
    resources: Resources = Field(description="what the largest run needs")


def store_of(path: Path, store: str) -> Path:
    """Return the path of the run store that the plan.json at ``path`` names as ``store``."""
    # Not by way of symbolic links: a folder of results may be one to another disk.
    return Path(os.path.normpath(path.parent / store))


def read_plan_file(path: Path) -> PlanFile:
    """Reads a plan.json.

    Raises:
        AnalysisError: missing, not JSON, or no plan of this format.
    """
    return read_as(PlanFile, path, "plan", missing=MAKE_ANEW, wrong=MAKE_ANEW)
