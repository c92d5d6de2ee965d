"""What is asked of Slurm and read from it, without one: profiles, partitions, queues."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from onionlab.commands import doctor
from onionlab.commands._arguments import add_executor_arguments, add_jobs_argument
from onionlab.commands._request import executor_of
from onionlab.engines.examination import Finding
from onionlab.errors import UserError
from onionlab.runs.workflow import nodes, slurm
from onionlab.runs.workflow.executor import GENERIC, SLURM, Executor, read_profile

REPOSITORY = Path(__file__).resolve().parents[2]
SIZE = slurm.Size(cpus=1, memory_mb=1500, runtime_min=20)


@pytest.fixture(autouse=True)
def slurm_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")


def asked(*words: str) -> Executor | None:
    parser = argparse.ArgumentParser()
    add_jobs_argument(parser)
    add_executor_arguments(parser)
    return executor_of(parser.parse_args(words))


def profile_of(folder: Path, **options: Any) -> Path:
    folder.mkdir(exist_ok=True)
    named = {key.replace("_", "-"): value for key, value in options.items()}
    (folder / "config.yaml").write_text(yaml.safe_dump(named))
    return folder


def test_without_an_executor_runs_are_made_here() -> None:
    assert asked() is None
    assert asked("--jobs", "3") is None


def test_what_is_a_clusters_needs_one() -> None:
    with pytest.raises(UserError, match=r"--partition, --profile: for the jobs of a cluster"):
        asked("--partition", "main", "--profile", "x")


def test_jobs_of_this_machine_are_none_of_a_cluster() -> None:
    with pytest.raises(UserError, match="--jobs is for simulations on this machine"):
        asked("--executor", "slurm", "--jobs", "3")


def test_the_command_line_goes_before_the_profile(tmp_path: Path) -> None:
    resources = ["slurm_partition=slow", "slurm_account='them'", "qos=low"]
    folder = profile_of(tmp_path / "mine", jobs=7, default_resources=resources)
    alone = asked("--executor", "slurm", "--profile", str(folder))
    assert alone is not None
    opened = alone.opened(REPOSITORY)
    assert (opened.max_jobs, opened.partition, opened.account, opened.qos) == (
        *(7, "slow", "them", "low"),
    )
    assert opened.job_resources() == {}
    both = asked("--executor", "slurm", "--profile", str(folder), "--partition", "fast")
    assert both is not None
    assert both.opened(REPOSITORY).partition == "fast"
    assert both.opened(REPOSITORY).job_resources() == {"slurm_partition": "fast"}


def test_the_shipped_profiles_are_right(tmp_path: Path) -> None:
    opened = Executor(SLURM, max_jobs=12).opened(REPOSITORY)
    assert opened.max_jobs == 12
    assert opened.arguments()[:4] == ["--executor", "slurm", "--jobs", "12"]
    generic = read_profile(REPOSITORY / "configs/generic")
    assert generic.options["executor"] == "cluster-generic"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (SLURM, {"executor": "lsf"}, r"says executor: lsf, and EXECUTOR=slurm stands for slurm"),
        (SLURM, {"directory": "x", "dry_run": True}, "may not say directory, dry-run"),
        (SLURM, {"jobs": "many"}, "jobs: expected a whole number"),
        (GENERIC, {}, "has no cluster-generic-submit-cmd"),
    ],
)
def test_a_profile_that_contradicts_is_named(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Executor(name, profile=profile_of(tmp_path / "mine", **options)).opened(REPOSITORY)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "is no Snakemake profile"), ("a: [", "is no YAML"), ("- a", "is no list of options")],
)
def test_what_is_no_profile_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(UserError, match=message):
        read_profile(tmp_path)


def test_the_profile_for_the_newest_version_counts(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("jobs: 1")
    (tmp_path / "config.v9+.yaml").write_text("jobs: 9")
    (tmp_path / "config.v8+.yaml").write_text("jobs: 8")
    assert read_profile(tmp_path).options["jobs"] == 9


def test_generic_takes_a_profile_and_nothing_of_slurm(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="takes a profile"):
        Executor(GENERIC).opened(REPOSITORY)
    folder = profile_of(tmp_path / "pbs", cluster_generic_submit_cmd="qsub")
    with pytest.raises(UserError, match="PARTITION and QOS: these are Slurm's"):
        Executor(GENERIC, profile=folder, partition="a", qos="b").opened(REPOSITORY)


def test_without_slurm_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(
        UserError, match="EXECUTOR=slurm, and this machine has no sbatch, srun, squeue"
    ):
        Executor(SLURM).opened(REPOSITORY)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("infinite", None),
        ("5:00", 5.0),
        ("30", 0.5),
        ("1:30:00", 90.0),
        ("2-00:00:00", 2880.0),
        ("n/a", None),
    ],
)
def test_limits_are_read_as_slurm_writes_them(text: str, minutes: float | None) -> None:
    assert slurm.minutes_of(text) == minutes


def test_a_queue_is_told_by_reason_and_node() -> None:
    text = """\
12|onionlab-a_1|RUNNING|n1|None|rule_make_wildcards_0a1b
13|onionlab-a_1|RUNNING|n1|None|rule_make_wildcards_0a1c
14|onionlab-a_1|PENDING||Resources|rule_make_wildcards_0a1d
15|onionlab-a_1|PENDING||Priority|(null)
16|onionlab-a_1|TIMEOUT|n2|TimeLimit|rule_make_wildcards_0a1e
"""
    jobs = slurm.parse_queue(text)
    assert [job.run_id for job in jobs] == ["0a1b", "0a1c", "0a1d", None, "0a1e"]
    assert [job.is_over for job in jobs] == [False, False, False, False, True]
    assert slurm.words_of_queue(jobs) == [
        "1 queued (Priority)",
        "1 queued (Resources)",
        "2 in jobs on n1 (2)",
    ]


class Answers:
    """Stands in for Slurm's commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of = {
            "scontrol": "AccountingStorageType   = accounting_storage/none\nMinJobAge = 300 sec\n",
            "sinfo": "main*|infinite|4000|2\nshort|10:00|4000+|64\n",
        }
        monkeypatch.setattr(slurm, "_ask", lambda *words: self.of[words[0]])
        monkeypatch.setattr(slurm, "_require_acceptance", lambda place, size: None)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


def place(
    partition: str | None = None, account: str | None = None, qos: str | None = None
) -> slurm.Place:
    return slurm.Place(partition, account, qos)


def test_a_job_that_fits_is_let_through(answers: Answers) -> None:
    assert slurm.require_cluster(place(), SIZE) == slurm.Cluster(accounts=False)
    answers.of["scontrol"] = "AccountingStorageType = accounting_storage/slurmdbd\n"
    assert slurm.require_cluster(place("main", "me"), SIZE).arguments() == []


def test_an_account_is_no_use_where_there_are_none(answers: Answers) -> None:
    with pytest.raises(UserError, match="ACCOUNT=me: this cluster has no accounts"):
        slurm.require_cluster(place(account="me"), SIZE)


def test_a_controller_that_forgets_is_no_use_without_a_database(answers: Answers) -> None:
    answers.of["scontrol"] = "AccountingStorageType = accounting_storage/none\nMinJobAge = 30 sec\n"
    with pytest.raises(UserError, match="forgets them 30 s after their end"):
        slurm.require_cluster(place(), SIZE)


def test_a_partition_that_is_not_there_is_named(answers: Answers) -> None:
    with pytest.raises(UserError, match="has no partition fast") as caught:
        slurm.require_cluster(place("fast"), SIZE)
    assert caught.value.hint == "its partitions are: main, short"


@pytest.mark.parametrize(
    ("partition", "size"),
    [
        ("short", SIZE),
        ("main", slurm.Size(1, 5000, 20)),
        (None, slurm.Size(1, 5000, 20)),
        ("main", slurm.Size(3, 1500, 20)),
    ],
)
def test_limits_below_a_runs_needs_are_told(
    answers: Answers, partition: str | None, size: slurm.Size
) -> None:
    with pytest.raises(UserError, match=r"one run needs .* and no node of .* gives that") as caught:
        slurm.require_cluster(place(partition), size)
    assert f"{partition or 'main'}: " in (caught.value.hint or "")


def test_without_a_partition_of_its_own_choice_one_has_to_be_named(answers: Answers) -> None:
    answers.of["sinfo"] = "main|infinite|4000|2\n"
    with pytest.raises(UserError, match="none is named"):
        slurm.require_cluster(place(), SIZE)


def findings(*words: str) -> list[tuple[str, str]]:
    parser = argparse.ArgumentParser()
    doctor.setup_arguments(parser)
    return [
        (found.status, found.text)
        for found in doctor.cluster_of(parser.parse_args(words), REPOSITORY)
    ]


def test_doctor_asks_the_cluster_that_is_named(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings() == []
    asked_for = "1 CPU, 1500 MB and 15 minutes"
    looked_at: list[slurm.Place] = []

    def look(root: Path, place: slurm.Place, *tools: object) -> list[Finding]:
        looked_at.append(place)
        return []

    monkeypatch.setattr(nodes, "examine_nodes", look)
    assert findings("--executor", "slurm") == [
        ("ok", f"Slurm takes jobs of {asked_for} in its default partition")
    ]
    assert looked_at == [slurm.Place(None, None, None)]
    ((status, text),) = findings("--executor", "slurm", "--partition", "fast")
    assert (status, text) == ("missing", "this cluster has no partition fast")
    ((status, text),) = findings("--executor", "generic")
    assert status == "missing"


# What nodes say


HERE = nodes.Node("login", {"Python": "3.11", "Shadow": "3.3.0"}, True, True, "/tmp/a", 2**30, 2)


def judged(**other: Any) -> list[str]:
    there = [replace(HERE, name="n1"), replace(HERE, **{"name": "n2", **other})]
    return [f"{found.status}: {found.text}" for found in nodes.judge(HERE, there)]


def test_nodes_that_are_as_here() -> None:
    assert judged() == [
        "ok: n1, n2: checkout, Python and programs are the same as here",
        "ok: those of the store's file system hold on all of them",
        "ok: n1: 1.0 GiB are free in /tmp/a",
        "ok: n2: 1.0 GiB are free in /tmp/a",
    ]


def test_a_node_without_shadow_is_named() -> None:
    found = judged(programs={**HERE.programs, "Shadow": "missing (it is not installed)"})
    assert found[0] == (
        "missing: not the same everywhere: Shadow on n2: missing (it is not installed); here: 3.3.0"
    )


def test_a_store_that_a_node_does_not_see() -> None:
    found = judged(sees_store=False, is_locked_out=False)
    assert found[0] == "missing: n2 cannot see a file that was made in the store here"
    assert not any("hold on all" in text for text in found)


def test_locks_that_do_not_reach_a_node() -> None:
    assert "warn: those of the store's file system do not reach n2" in judged(is_locked_out=False)


def test_a_node_without_a_disk_of_its_own() -> None:
    found = judged(own_disk="", free_bytes=0)
    assert "warn: n2: none, so jobs write to the store while they simulate" in found


def test_nodes_answer_in_lines_of_their_own() -> None:
    there = replace(HERE, name="n1")
    text = f"a banner\n{nodes.answer(HERE)}\n{nodes.answer(there)}\n"
    assert nodes.parse_answers(text) == [HERE, there]
    with pytest.raises(UserError, match="a node answers in another program's words"):
        nodes.parse_answers(nodes.MARK + '{"name": "n1"}')


def test_a_file_that_nobody_has_locked_is_not_locked(tmp_path: Path) -> None:
    with nodes._held_file(tmp_path) as file:
        assert nodes._is_locked(file)
        (free := tmp_path / "free").touch()
        assert not nodes._is_locked(free)
    assert not file.exists()


def test_nodes_that_are_up_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_ask", lambda *words: "main*|3\nmain*|4\nother|100\n")
    assert slurm.nodes_of(slurm.Place(None, None, None)) == 7
