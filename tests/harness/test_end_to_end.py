"""Complete runs with the commands of a user: on the real Shadow, and with a Shadow that fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from shell_scripts import write_script

from analysis.formats.study import load_study
from onionlab.engines.uml.guest.boot import LOG_MARK
from onionlab.runs.plan import read_plan

from .checkout import CONTENDED, TINY, Checkout, arguments, processes_below

LIMIT_S = 600

# Two changes of a checkout's code, each given as (old string, new string). Together they disable
# the watch of relays' logs.
WATCHED = ('WATCHED_ROLES = ("authority", *RELAY_ROLES)', "WATCHED_ROLES = ()")
LOOK = ("look(progress.simulated_s)", "pass")


ENGINES = pytest.mark.parametrize(
    "engine",
    [pytest.param("shadow", marks=pytest.mark.shadow), pytest.param("uml", marks=pytest.mark.uml)],
    indirect=True,
)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.tor
@ENGINES
def test_an_experiment_from_the_command_to_its_report(
    engine: str, checkout: Checkout, circuit_policy_build: None
) -> None:
    done = checkout.onionlab("experiment", *arguments(engine))
    results = checkout.results("tiny")
    assert done.stdout.splitlines()[-1] == str(results / "report.html")
    (run_id,) = checkout.run_names("tiny")
    manifest = json.loads(checkout.store.manifest(run_id).read_text())
    # Each Tor process logged the line that proves its variant: 3 authorities, 4 relays, 5 clients.
    assert manifest["proofs"] == {"Circuit policy in use: RR.": 12}
    assert manifest["cpu_s"] > 1
    assert manifest["peak_memory_bytes"] > 50e6
    parse = json.loads(next(checkout.store.run(run_id).glob("records-*/parse.json")).read_text())
    assert parse["malformed_lines"] == 0
    assert parse["streams"]["web"]["success"] >= 10
    assert "web,ttfb" in (results / "summary.csv").read_text()
    assert len(checkout.record_hashes(run_id)) == 3


@pytest.mark.slow
@pytest.mark.tor
@ENGINES
def test_a_wrong_proof_ends_the_run_when_it_is_logged(engine: str, checkout: Checkout) -> None:
    """The run ends early if Tor logs that it uses another policy than the variant's."""
    patches = checkout.root / "tor-patches"
    shipped = patches.resolve()
    patches.unlink()
    shutil.copytree(shipped, patches)
    registry = patches / "variants.yaml"
    right, wrong = (f'proof: "Circuit policy in use: {name}."' for name in ("RR", "Round robin"))
    text = registry.read_text()
    assert text.count(right) == 1
    registry.write_text(text.replace(right, wrong))
    done = checkout.onionlab("experiment", *arguments(engine), status=2)
    assert (
        "tiny rr seed 1: Tor logged ['Circuit policy in use: RR.'] instead of "
        '"Circuit policy in use: Round robin."'
    ) in done.stderr
    assert "(detected during the run, which was stopped)" in done.stderr
    (run_id,) = checkout.run_names("tiny")
    failed = checkout.store.failed(run_id)
    assert processes_below(failed) == []
    log = (failed / "shadow.data/hosts/authority1/tor-circuit-policy.1000.stdout").read_text()
    assert "Circuit policy in use: RR." in log


@pytest.mark.slow
@pytest.mark.tor
@pytest.mark.uml
@pytest.mark.parametrize("engine", ["uml"], indirect=True)
def test_watching_changes_nothing(engine: str, checkout: Checkout) -> None:
    """Records are the same with and without the watch of Tor's logs during a run.

    For the watch, the embedded engine's guest kernel copies lines of Tor's logs to its console.
    This must not delay Tor.
    """
    hashes = []
    for changed in ({}, {"rundir/compose.py": WATCHED, "runs/runner.py": LOOK}):
        for name, (text, other) in changed.items():
            code = checkout.root / "onionlab" / name
            assert code.read_text().count(text) == 1
            code.write_text(code.read_text().replace(text, other))
        checkout.onionlab("run", *arguments(engine))
        (run_id,) = checkout.run_names("tiny")
        console = (checkout.store.run(run_id) / "uml.log").read_text()
        assert (LOG_MARK in console) is not bool(changed)
        hashes.append((run_id, checkout.record_hashes(run_id)))
        checkout.remove_run(run_id)
    assert len(hashes[0][1]) == 3
    assert hashes[0] == hashes[1]


@pytest.mark.slow
@pytest.mark.tor
@pytest.mark.shadow
@pytest.mark.parametrize("engine", ["shadow"], indirect=True)
def test_a_killed_experiment_is_finished_by_the_same_command(
    engine: str, checkout: Checkout
) -> None:
    """This test uses Shadow. test_kills.py covers the embedded engine and more kinds of kills."""
    checkout.onionlab("experiment", *arguments(engine))
    (run_id,) = checkout.run_names("tiny")
    hashes = checkout.record_hashes(run_id)
    assert len(hashes) == 3

    # After the kill, no process remains, and the run does not count as finished.
    checkout.remove_run(run_id)
    command = checkout.start("experiment", *arguments(engine))
    deadline = time.monotonic() + LIMIT_S
    while checkout.simulated_s() <= 50:
        assert time.monotonic() < deadline
        assert command.poll() is None
        time.sleep(0.2)
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    deadline = time.monotonic() + 30
    while processes_below(checkout.store.partial(run_id)):
        assert time.monotonic() < deadline, "processes outlive the command that started them"
        time.sleep(0.5)
    assert not checkout.store.is_finished(run_id)

    # The same command finishes the run, with byte-identical records.
    checkout.onionlab("experiment", *arguments(engine))
    assert checkout.record_hashes(run_id) == hashes


@pytest.mark.slow
@pytest.mark.uml
@pytest.mark.tor
def test_a_policy_shares_a_full_connection(checkout: Checkout) -> None:
    """Two downloads share the same relays and a narrow link. Each uses its own circuit."""
    checkout.onionlab("run", *arguments("uml", "rr,ewma", CONTENDED))
    plan = read_plan(checkout.results(CONTENDED.stem) / "plan.json")
    (level,) = load_study(plan.study).levels
    for run in plan.runs:
        (table,) = checkout.store.run(run.run_id).glob("records-*/goodput.parquet")
        beats = pq.read_table(table).to_pandas()
        measured = beats["time_s"].between(level.measured_start_s, level.measured_end_s)
        downloads = beats[beats["class"].eq("bulk") & measured]
        read_bytes = downloads.groupby("client", observed=True)["bytes_read"].sum()
        assert len(read_bytes) == 2
        # RR shares the link exactly. EWMA's shares depend on its half-life.
        least_share = {"rr": 0.99, "ewma": 0.8}[run.variant]
        assert read_bytes.min() / read_bytes.max() > least_share


@pytest.fixture
def failing_tools(tmp_path: Path) -> list[str]:
    """Return options that select a Shadow that fails during a run, and a TGen.

    Both are scripts that print versions like the real programs.
    """
    shadow = write_script(
        tmp_path / "shadow",
        'if [ "$1" = --version ]; then echo "Shadow 3.3.0 - v3.3.0-1-gabcdef012"; exit 0; fi\n'
        "echo '00:00:01 [1:shadow] n/a [INFO] resource usage at simtime 1000000000 reported'\n"
        "echo '00:00:02 [1:shadow] n/a [ERROR] managed process tor exited with status 1'\n"
        "exit 1\n",
    )
    says = "[message] Initializing TGen v1.1.2 running GLib v2.74.6"
    tgen = write_script(tmp_path / "tgen", f"echo '{says}'\n")
    return ["--shadow", str(shadow), "--tgen", str(tgen)]


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.tor
def test_a_failing_shadow_gives_one_error_and_keeps_earlier_results(
    failing_tools: list[str], checkout: Checkout, circuit_policy_build: None
) -> None:
    results = checkout.results("tiny")
    results.mkdir(parents=True)
    (results / "report.html").write_text("of other runs")
    words = ["experiment", str(TINY), "--variants", "rr", *failing_tools]
    done = checkout.onionlab(*words, status=2)
    first = done.stderr.splitlines()[0]
    assert first.startswith("error: 1 of 1 runs failed; the first, tiny rr seed 1: Shadow ended")
    assert "managed process tor exited with status 1" in done.stderr
    assert "Traceback" not in done.stderr
    (run_id,) = checkout.run_names("tiny")
    failed = checkout.store.failed(run_id)
    assert (failed / "shadow.log").exists()
    assert (failed / "shadow.config.yaml").exists()
    assert not checkout.store.is_finished(run_id)
    # An earlier report is kept, and the message says that it is an earlier one.
    assert (results / "report.html").read_text() == "of other runs"
    assert done.stderr.splitlines()[-1] == f"{results}/report.html is that of an earlier command"
