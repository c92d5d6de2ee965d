"""study.json describes its finished runs, and a plan can be read after its folder was moved."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from analysis.formats.manifest import Manifest
from analysis.formats.plan_file import PlannedRun, Request, Resources
from analysis.formats.study import load_study, write_study
from onionlab.commands._request import load_plan
from onionlab.errors import UserError
from onionlab.runs.plan import Plan, read_plan
from onionlab.runs.store import Store
from onionlab.runs.study_file import update_provenance

from .test_engine_comparison import study, study_runs


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    runs = tuple(PlannedRun(f"{seed}a", "quick", "rr", seed) for seed in (1, 2))
    made = Plan(
        Request("quick"), runs, tmp_path / "runs", tmp_path / "quick", 1, Resources(1, 2, 3)
    )
    made.write()
    write_study(made.study, study("uml").model_copy(update={"runs": study_runs(runs)}))
    return made


def finish(plan: Plan, run: PlannedRun) -> None:
    store = Store(plan.store)
    store.partial(run.run_id).mkdir(parents=True)
    store.finish(
        run.run_id, Manifest(run_id=run.run_id, wall_s=1.0 + run.seed, cpu_s=1.0, proofs={"RR": 4})
    )


def test_the_plan_of_a_copied_checkout_names_the_copy_s_runs(plan: Plan, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(plan.out, copy / plan.out.relative_to(tmp_path))
    assert read_plan(plan.file) == plan
    copied = read_plan(copy / plan.file.relative_to(tmp_path))
    assert copied.store == copy / plan.store.relative_to(tmp_path)


def test_a_run_whose_logs_were_cut_is_not_passed_over(plan: Plan, tmp_path: Path) -> None:
    shutil.copytree(plan.out, tmp_path / "results" / "quick")
    copied = replace(plan, out=tmp_path / "results" / "quick")
    copied.write()
    store = Store(plan.store)
    log = store.partial("1a") / "shadow.data" / "hosts" / "web" / "tgen.1000.stdout"
    log.parent.mkdir(parents=True)
    log.write_text("line\nline\n")
    store.finish("1a", Manifest(run_id="1a"))
    assert load_plan("quick", tmp_path) == copied
    (store.run("1a") / log.relative_to(store.partial("1a"))).write_text("line\n")
    with pytest.raises(UserError, match="1a is incomplete: its logs differ"):
        load_plan("quick", tmp_path)


def test_a_results_folder_may_be_a_link_to_another_disk(plan: Plan, tmp_path: Path) -> None:
    disk = tmp_path / "mnt" / "disk" / "results"
    disk.parent.mkdir(parents=True)
    plan.out.rename(disk)
    plan.out.symlink_to(disk)
    assert read_plan(plan.file) == plan


def test_the_study_lists_the_programs_of_each_run(plan: Plan) -> None:
    for run in plan.runs:
        finish(plan, run)
    update_provenance(plan.study, plan.store)
    made = load_study(plan.study)
    assert made.provenance["engine"] == study("uml").provenance["engine"]
    same = {"cpu_s": 1.0, "peak_memory_bytes": None, "proofs": {"RR": 4}, "host": {}}
    assert made.provenance["runs"] == [
        {**asdict(run), "wall_s": 1.0 + run.seed, **same} for run in plan.runs
    ]
    update_provenance(plan.study, plan.store)
    assert load_study(plan.study) == made
