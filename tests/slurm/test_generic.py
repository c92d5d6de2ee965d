"""EXECUTOR=generic: a cluster known by a command that submits, which is a small script here."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.formats.files import RECORDS
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.errors import UserError
from onionlab.runs.plan import Plan
from onionlab.runs.workflow import drive, remote
from onionlab.runs.workflow.executor import GENERIC, Executor
from onionlab.runs.workflow.job_sizes import JobSize

# Submits a job: it runs at once and on its own, as one of a cluster does.
SUBMIT = """\
#!/bin/sh
echo "$1" >>'{folder}/asked'
env -i PATH="$PATH" HOME="$HOME" setsid sh "$2" >>'{folder}/said' 2>&1 </dev/null &
echo $!
"""
# Stands in for Python in a job: the call of `run-one` that makes a run and its records.
JOB = """\
#!/bin/sh
if test "$3" = report; then
    hostname >>'{folder}/reports'
    test ! -e '{folder}/no-report'
    exit
fi
echo "$9 ${{13}}" >>'{folder}/calls'
echo "$PYTHONPATH" >'{folder}/path'
test -f "${{11}}" || exit 9
case "$9" in
bad*) exit 1 ;;
c1) test "${{13}}" -gt 1 || exit 1 ;;
esac
mkdir -p '{store}'/"$9"/{records} && echo '{{}}' >'{store}'/"$9"/manifest.json
echo '{{}}' >'{store}'/"$9"/{records}/parse.json
"""


class Generic:
    """A plan whose jobs only say so, through a script that submits."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.store = root, root / "runs"
        self.store.mkdir()
        for name, text in (("submit", SUBMIT), ("job", JOB)):
            path = root / name
            path.write_text(text.format(folder=root, store=self.store, records=RECORDS))
            path.chmod(0o755)
        profile = root / "profile"
        profile.mkdir()
        wanted = "{threads}/{resources.mem_mb}/{resources.runtime}/{resources.disk_mb}"
        (profile / "config.yaml").write_text(
            f"cluster-generic-submit-cmd: {root}/submit {wanted}\nlatency-wait: 5\n"
        )
        self.executor = Executor(GENERIC, max_jobs=2, profile=profile)
        of_plans = drive._workflow_config
        monkeypatch.setattr(
            drive,
            "_workflow_config",
            lambda *words: {**of_plans(*words), "python": str(root / "job")},
        )
        monkeypatch.setattr(
            remote,
            "job_sizes",
            lambda root, plans: {
                run.run_id: JobSize(1, 700, 11, 5) for plan in plans for run in plan.runs
            },
        )

    def plan(self, **runs: int) -> Plan:
        """A plan of some runs, by name and seed."""
        planned = tuple(PlannedRun(run, "level", "rr", seed) for run, seed in runs.items())
        out = self.root / "results" / "one"
        # So much memory no machine has: others' is not asked for here.
        resources = Resources(memory_bytes=2**60, disk_bytes=1, processes=1)
        return Plan(Request("one"), planned, self.store, out, 1, resources)

    def make(self, **runs: int) -> list[str]:
        """Make some runs; return the calls of their jobs: run and attempt."""
        plans = [self.plan(**runs)]
        drive.make_runs(self.root, plans, jobs=None, say=lambda line: None, executor=self.executor)
        return self.lines("calls")

    def lines(self, name: str) -> list[str]:
        return (self.root / name).read_text().splitlines()


@pytest.fixture
def generic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generic:
    return Generic(tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_submit_command_is_enough(generic: Generic) -> None:
    calls = generic.make(a2=2, b3=1, c1=1)
    # One job makes a run and its records; one that was ended is made again, with more of all.
    assert sorted(calls) == ["a2 1", "b3 1", "c1 1", "c1 2"]
    assert sorted(generic.lines("asked")) == ["1/1400/22/5", *["1/700/11/5"] * 3]
    assert str(Path(drive.__file__).parents[3]) in generic.lines("path")[0]
    # Nothing of the command is left beside the results.
    assert not list((generic.root / "results" / "one").glob(".command-*"))


def test_a_path_that_a_job_script_would_take_apart_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a folder").mkdir()
    with pytest.raises(UserError, match="a folder/runs: no job of a cluster can have this path"):
        Generic(tmp_path / "a folder", monkeypatch).make(a2=2)


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_others(generic: Generic) -> None:
    with pytest.raises(UserError, match="the workflow failed"):
        generic.make(bad1=1, f2=1)
    assert generic.lines("calls").count("bad1 3") == 1
    assert (generic.store / "f2" / "manifest.json").exists()


@pytest.mark.slow
def test_the_report_is_made_here(generic: Generic) -> None:
    plan = generic.plan(d4=1)
    drive.make_report(
        generic.root, plan, jobs=None, say=lambda line: None, executor=generic.executor
    )
    # One job was submitted; the report was none, and is made once.
    assert len(generic.lines("asked")) == len(generic.lines("reports")) == 1
    (generic.root / "no-report").touch()
    with pytest.raises(UserError, match="the workflow failed"):
        drive.make_report(
            generic.root, plan, jobs=None, say=lambda line: None, executor=generic.executor
        )
    assert len(generic.lines("asked")) == 1
    assert len(generic.lines("reports")) == 2
