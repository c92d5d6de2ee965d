"""plan.json: the runs of an experiment, and everything that a process needs to perform one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import reader

MAKE_ANEW = "create it again: make generate NAME=..."


@dataclass(frozen=True)
class Request:
    """The user's request, as given on the command line."""

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


def format_network(seed: int, repeat: int) -> str:
    """Return a string with a run's network and, if it is not the first repeat, its repeat."""
    return f"seed {seed}" if repeat == 1 else f"seed {seed} repeat {repeat}"


@dataclass(frozen=True)
class PlannedRun:
    """One run: its name in the store, and its level, variant and network in this experiment."""

    run_id: str = Field(description="its name in the store")
    level: str = Field(description="name of its level")
    variant: str = Field(description="name of its variant")
    seed: int = Field(
        description="its network: the seed of everything that the network's runs share"
    )
    repeat: int = Field(default=1, description="number of the run on its network, from 1")

    @property
    def title(self) -> str:
        """Level, variant, network and repeat, for readers."""
        return f"{self.level} {self.variant} {format_network(self.seed, self.repeat)}"


@dataclass(frozen=True)
class Resources:
    """Estimated requirements of one run."""

    memory_bytes: int = Field(description="private memory at its peak")
    disk_bytes: int = Field(description="size of its directory at the end")
    processes: int = Field(description="processes of the simulation, each with its threads")


class PlanFile(FormatModel):
    """plan.json: the runs of an experiment, and everything that a process needs to perform one."""

    format: Literal[1, 2] = Field(description="version; 1 has the absolute path of the store")
    request: Request = Field(description="the request")
    runs: tuple[PlannedRun, ...] = Field(description="by seed, repeat, level and variant")
    store: str = Field(description="path of the run store, relative to the folder of this file")
    cpus_per_run: Annotated[int, Field(ge=0)] = Field(description="CPUs reserved for one run")
    resources: Resources = Field(description="requirements of the largest run")
    resolved: dict[str, Any] = Field(
        default={},
        description="the experiment as jobs need it: name, kind, seeds, repeats, and the label and "
        "the settings of each level, as in resolved.yaml",
    )


def store_of(path: Path, store: str) -> Path:
    """Return the path of the run store. ``store`` is its entry in the plan.json at ``path``."""
    # Do not resolve symbolic links. If the folder of results is a link to another disk, ".." means
    # the folder that contains the link.
    return Path(os.path.normpath(path.parent / store))


read_plan_file = reader(PlanFile, "plan", missing=MAKE_ANEW, wrong=MAKE_ANEW)
