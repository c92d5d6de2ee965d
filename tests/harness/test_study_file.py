"""study.json describes its finished runs and earlier looks, and plans can be moved.

Earlier looks (interim analyses) at the runs of a study are remembered in later plans.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from analysis.formats.files import MANIFEST
from analysis.formats.manifest import Manifest
from analysis.formats.plan_file import PlannedRun, Request, Resources
from analysis.formats.study import Looks, PlannedLooks, load_study, write_study
from onionlab.commands._request import load_plan
from onionlab.errors import UserError
from onionlab.runs.earlier_looks import looks_together, with_earlier_looks
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


class StudyFolder:
    """A study file, and a store. A finished run in the store consists only of a manifest."""

    def __init__(self, folder: Path) -> None:
        self.study = folder / "study.json"
        self.store = Store(folder / "runs")

    def plan(self, seeds: int, looks: Looks | None = None, name: str = "run") -> Looks | None:
        """Do what ``make_plan`` does: read earlier looks, and write the study. Return its looks."""
        made = [PlannedRun(f"{name}{n}", "quick", "ewma", n) for n in range(1, seeds + 1)]
        found = with_earlier_looks(self.study, self.store, made, looks)
        changes = {"looks": found, "runs": study_runs(made)}
        write_study(self.study, study("shadow").model_copy(update=changes))
        return load_study(self.study).looks

    def run(self) -> None:
        """Make the runs of the current study."""
        for run in load_study(self.study).runs:
            self.store.run(run.run_id).mkdir(parents=True, exist_ok=True)
            (self.store.run(run.run_id) / MANIFEST).write_text("{}")


@pytest.fixture
def bench(tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path)


def test_more_networks_are_a_further_look(bench: StudyFolder) -> None:
    assert bench.plan(5) is None
    bench.run()
    assert bench.plan(5) is None
    assert bench.plan(8) == Looks((8,), 8, (PlannedLooks((5,), 5),))
    bench.run()
    # Planning the same networks again adds no look. Looks at more networks are not earlier looks of
    # a plan with fewer networks.
    assert bench.plan(8) == Looks((8,), 8, (PlannedLooks((5,), 5),))
    third = bench.plan(20)
    assert third == Looks((20,), 20, (PlannedLooks((5,), 5), PlannedLooks((8,), 8)))
    assert bench.plan(3) is None


def test_one_network_does_not_count_as_a_look(bench: StudyFolder) -> None:
    """With one network nothing is tested, so no part of the error rate is spent."""
    assert bench.plan(1) is None
    bench.run()
    assert bench.plan(3) is None
    bench.run()
    assert bench.plan(5) == Looks((5,), 5, (PlannedLooks((3,), 3),))


def test_parts_remember_each_ones_looks() -> None:
    assert looks_together([None, None], 5) is None
    before = (PlannedLooks((1,), 1), PlannedLooks((2,), 2))
    one, other = Looks((3,), 3, before), Looks((4,), 9, (PlannedLooks((3,), 9), before[1]))
    assert looks_together([one, None], 5) == looks_together([None, one], 5)
    assert looks_together([one, one], 5) == Looks((5,), 5, before)
    together = looks_together([one, other], 7)
    assert together == looks_together([other, one], 7)
    assert together == Looks((7,), 7, (*before, PlannedLooks((3,), 9)))
    # A study can be merged from parts with different networks. If a part was analysed at several
    # numbers of networks, all of these looks are earlier looks at the merged study.
    grown = Looks((3, 4), 9)
    assert looks_together([grown, None], 6) == Looks((6,), 6, (PlannedLooks((3, 4), 9),))
    assert looks_together([grown, grown], 4) == Looks((4,), 4, (PlannedLooks((3, 4), 9),))
    # The result is the same if the parts are combined one after another.
    assert looks_together([looks_together([one, None], 4), other], 7) == together


def test_a_raised_budget_remembers_the_first(bench: StudyFolder) -> None:
    assert bench.plan(3, Looks((3,), 10)) == Looks((3,), 10)
    bench.run()
    # The budget, the maximum number of networks, is still 10. So the second plan continues the
    # first plan, and includes the first plan's interim analysis of three networks.
    assert bench.plan(4, Looks((3, 4), 10)) == Looks((3, 4), 10)
    bench.run()
    raised = bench.plan(3, Looks((3,), 20))
    assert raised == Looks((3,), 20, (PlannedLooks((3, 4), 10),))


def test_unfinished_runs_do_not_count_as_a_look(bench: StudyFolder) -> None:
    bench.plan(5)
    assert bench.plan(8) is None
