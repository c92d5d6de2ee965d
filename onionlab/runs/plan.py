"""A plan: which runs an experiment has, by what name, and where its results go.

It stands in `results/<name>/plan.json` with all that a job process needs to compose a run again;
`study.json` beside it is what the analysis is told (see onionlab/runs/study_file.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.json_files import write_json
from analysis.formats.plan_file import (
    MAKE_ANEW,
    PlanFile,
    PlannedRun,
    Request,
    Resources,
    read_plan_file,
    store_of,
)
from onionlab.errors import UserError


@dataclass(frozen=True)
class Plan:
    """All runs of an experiment, and where results go."""

    request: Request
    runs: tuple[PlannedRun, ...]
    store: Path
    out: Path
    cpus_per_run: int
    resources: Resources
    resolved: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Where the plan is written."""
        return self.out / files.PLAN

    @property
    def study(self) -> Path:
        """What the analysis reads."""
        return self.out / files.STUDY


def write_plan(plan: Plan) -> None:
    """Write a plan where it belongs."""
    content = PlanFile(
        format=2,
        request=plan.request,
        runs=plan.runs,
        store=os.path.relpath(plan.store, plan.out),
        cpus_per_run=plan.cpus_per_run,
        resources=plan.resources,
        resolved=dict(plan.resolved),
    )
    write_json(plan.file, content.content())


def read_plan(path: Path) -> Plan:
    """Read a plan that `write_plan` wrote. Raises UserError where it is no such file."""
    try:
        content = read_plan_file(path)
    except AnalysisError as error:
        raise UserError(f"{path} is no plan: {error.message}", MAKE_ANEW) from error
    return Plan(
        request=content.request,
        runs=content.runs,
        store=store_of(path, content.store),
        out=path.parent,
        cpus_per_run=content.cpus_per_run,
        resources=content.resources,
        resolved=content.resolved,
    )
