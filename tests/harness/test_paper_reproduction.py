"""`make figures`: the requested runs, the handling of failures, and the messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import analysis.pages.paper
from analysis.errors import AnalysisError
from analysis.formats.json_files import write_json
from analysis.formats.manifest import identity_hash
from analysis.formats.plan_file import PlannedRun, Request, Resources
from analysis.formats.study import ClassLoad, Run, load_study, write_study
from analysis.pages.claims import OtherStudy
from analysis.pages.paper import Paper, PaperResult
from onionlab.cli import main
from onionlab.commands import figures
from onionlab.errors import UserError
from onionlab.experiment.claims_file import load_claims
from onionlab.programs.building import ensure_building_allowed
from onionlab.questions import paper_reproduction as paper
from onionlab.runs.packing import pack
from onionlab.runs.plan import Plan
from onionlab.runs.store import Store

from .checkout import REPOSITORY
from .test_engine_comparison import study, study_runs


class FakeRunner:
    """Replaces plans, runs and the drawing of figures."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tmp_path = tmp_path
        # The command uses this folder as its checkout, and writes its results there.
        for name in ("experiments", "configs", "tor-patches"):
            (tmp_path / name).symlink_to(REPOSITORY / name)
        monkeypatch.setattr(figures, "working_root", lambda: tmp_path)
        self.planned: list[tuple[Request, Path]] = []
        self.ran: list[str] = []
        self.built: list[Paper] = []
        self.beside: OtherStudy | None = None
        self.failing: set[str] = set()
        self.missing: tuple[Run, ...] = ()
        self.nothing_there = False
        self.lacking = ""
        self.store = tmp_path / "runs"
        monkeypatch.setattr(paper, "make_plan", self.make_plan)
        monkeypatch.setattr(paper, "make_runs", self.make_runs)
        monkeypatch.setattr(analysis.pages.paper, "build", self.build)
        monkeypatch.setattr(analysis.pages.paper, "answer_other_study", self.answer_other_study)

    def make_plan(self, root: Path, request: Request, *, out: Path) -> Plan:
        self.planned.append((request, out))
        if self.lacking:
            ensure_building_allowed(self.lacking)
        write_study(
            out / "study.json", study("shadow").model_copy(update={"name": request.experiment})
        )
        plan = Plan(request, (), self.tmp_path / "runs", out, 1, Resources(1, 1, 1))
        plan.write()
        return plan

    def make_runs(self, root: Path, plans: list[Plan], where: None) -> None:
        self.ran += [plan.request.experiment for plan in plans]
        if self.failing:
            raise UserError(f"{len(self.failing)} of 9 runs failed", "look there")

    def answer_other_study(self, content: Paper, store: Path, title: str) -> OtherStudy:
        assert [study.name for study in content.studies] == EXPERIMENTS
        return OtherStudy(title, (), ())

    def build(
        self, content: Paper, store: Path, out: Path, software: dict[str, str],
        beside: OtherStudy | None,
    ) -> PaperResult:  # fmt: skip
        if self.nothing_there:
            raise AnalysisError("none of the runs is in the store", "make them first")
        assert store in (self.store, *self.store.glob(".unpacking-*"))
        assert {"onionlab", "matplotlib"} <= set(software)
        self.built.append(content)
        self.beside = beside
        return PaperResult(out / "figures.html", (), self.missing)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    return FakeRunner(tmp_path, monkeypatch)


def repeat(bench: FakeRunner, **changes: Any) -> tuple[PaperResult, UserError | None]:
    arguments: dict[str, Any] = {"where": None, "run": True, **changes}
    request = arguments.pop("request", Request("", scale=0.1, seeds=5))
    return paper.reproduce_paper(bench.tmp_path, "swrr", request, **arguments)


EXPERIMENTS = [f"{kind}-{n}mid" for kind in ("weights", "swrr") for n in (20, 10, 5)]


def test_all_experiments_of_the_paper_are_run_as_requested(bench: FakeRunner) -> None:
    made, failure = repeat(bench)
    assert [request.experiment for request, _ in bench.planned] == EXPERIMENTS
    assert {(request.scale, request.seeds) for request, _ in bench.planned} == {(0.1, 5)}
    # These plans are written below figures/, so that they do not replace the plans in
    # results/<experiment>.
    folder = bench.tmp_path / "results" / "figures"
    assert [out for _, out in bench.planned] == [folder / "plans" / one for one in EXPERIMENTS]
    assert bench.ran == EXPERIMENTS
    (built,) = bench.built
    assert [study.name for study in built.studies] == EXPERIMENTS
    assert built.claims == load_claims("swrr", root=REPOSITORY).claims
    assert (made.html, failure) == (folder / "figures.html", None)


def test_nothing_is_built_where_only_the_store_is_asked_for(
    bench: FakeRunner, caplog: pytest.LogCaptureFixture
) -> None:
    """With NO_RUN, nothing is built.

    The name of a run depends on the built Tor. If Tor is not built, the names of the runs come from
    the last plan.
    """
    bench.lacking = "build/tor holds nothing"
    with pytest.raises(
        UserError, match=r"weights-20mid: nothing is built with NO_RUN.*\(build/tor"
    ):
        repeat(bench, run=False)
    assert bench.built == []
    repeat(bench)
    repeat(bench, run=False)
    assert len(bench.built) == 2
    assert caplog.text.count("the runs last planned") == len(EXPERIMENTS)
    with pytest.raises(UserError) as refused:
        repeat(bench, run=False, request=Request("", scale=0.2, seeds=5))
    assert "The last plan was for SCALE=0.1, NETWORKS=5, ENGINE=auto." in str(refused.value.hint)
    # If Tor is built, the runs are planned again.
    bench.lacking, before = "", len(bench.planned)
    repeat(bench, run=False)
    assert len(bench.planned) == before + len(EXPERIMENTS)


def test_runs_that_fail_do_not_keep_the_others(bench: FakeRunner) -> None:
    bench.failing = {"one run", "another"}
    _, failure = repeat(bench)
    assert bench.ran == EXPERIMENTS
    assert failure is not None
    assert failure.message == "2 of 9 runs failed"
    # If there is no run at all, the error states the failure and not that the store is empty.
    bench.nothing_there = True
    with pytest.raises(UserError, match="2 of 9 runs failed"):
        repeat(bench)
    bench.failing = set()
    with pytest.raises(UserError, match="none of the runs is in the store"):
        repeat(bench)


def test_the_command_reports_missing_runs(
    bench: FakeRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figures", "--scale", "0.1", "--seeds", "5", "--no-run"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == str(bench.tmp_path / "results" / "figures" / "figures.html")
    bench.failing = {"one run"}
    bench.missing = study_runs([PlannedRun("x", "5mid", "rr", 1)])
    assert main(["figures"]) == 1
    output = capsys.readouterr()
    assert "1 run is missing" in output.out
    assert "error: 1 of 9 runs failed\nlook there" in output.err
    assert main(["figures", "--claims", "none"]) == 2
    assert "no claims called" in capsys.readouterr().err


def test_published_runs_need_neither_build_nor_engine(
    bench: FakeRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    identity: dict[str, object] = {"files": {}}
    run_id = identity_hash(identity)
    runs = Store(bench.tmp_path / "elsewhere")
    write_json(runs.manifest(run_id), {"identity": identity})
    # The code cannot read this version of records, so the records are packed unread.
    write_json(runs.run(run_id) / "records-v0" / "parse.json", {"format": 0})
    studies = [bench.tmp_path / name / "study.json" for name in EXPERIMENTS]
    write_studies(studies, "web")
    file = bench.tmp_path / "runs.tar.xz"
    pack(runs, [run_id], file, studies=list(map(load_study, studies)), logs=False)
    bench.store = bench.tmp_path / "results" / "figures"
    assert main(["figures", "--packs", str(file)]) == 0
    (built,) = bench.built
    assert [study.name for study in built.studies] == EXPERIMENTS
    assert (bench.planned, bench.ran) == ([], [])
    assert not list(bench.store.glob(".unpacking-*"))
    assert bench.beside is None
    other = bench.tmp_path / "others.tar.xz"
    other.write_bytes(file.read_bytes())
    assert main(["figures", "--packs", str(file), "--compare-with", str(other)]) == 0
    assert bench.beside == OtherStudy("others.tar.xz", (), ())
    assert not list(bench.store.glob(".unpacking-*"))
    pack(runs, [run_id], file, studies=list(map(load_study, studies[1:])), logs=False)
    assert main(["figures", "--packs", str(file)]) == 2
    assert f"there are no runs of {EXPERIMENTS[0]} in " in capsys.readouterr().err
    write_studies(studies, "perf-exit")
    pack(runs, [run_id], file, studies=list(map(load_study, studies)), logs=False)
    assert main(["figures", "--packs", str(file)]) == 2
    assert 'class: no run has "web"' in capsys.readouterr().err


def write_studies(paths: list[Path], class_name: str) -> None:
    """Write a study for each experiment of the paper, with one class of clients."""
    made = study("shadow")
    levels = tuple(
        level.model_copy(update={"classes": {class_name: ClassLoad()}}) for level in made.levels
    )
    for path, name in zip(paths, EXPERIMENTS, strict=True):
        write_study(path, made.model_copy(update={"name": name, "levels": levels}))
