"""Watching relays' logs during a run: a run is ended early only if it can no longer be valid."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.formats.plan_file import Request
from onionlab.engines.base import WATCHED_LATE_S
from onionlab.experiment import Settings, load
from onionlab.rundir.verify import Expectation, ProofRequirement, ProofWatch, RunRefusedError
from onionlab.runs.run_builder import run_builder

REPOSITORY = Path(__file__).resolve().parents[2]

PREFIXES = ["Circuit policy in use: ", "Stream order in use: "]
RR, EWMA = (f"Circuit policy in use: {name}." for name in ("RR", "EWMA"))
LIST = "Stream order in use: list."
DUE_S = 90.0 + WATCHED_LATE_S


class Relays:
    """Logs of some hosts, and the watch of these logs."""

    def __init__(self, hosts: Path, **expectations: Expectation) -> None:
        self.hosts = hosts
        self.watch = ProofWatch(hosts, expectations, PREFIXES, every_relay_s=90.0, an_exit_s=200.0)

    def log(self, host: str, text: str) -> None:
        (self.hosts / host).mkdir(exist_ok=True)
        with (self.hosts / host / "tor-x.1000.stdout").open("a") as log:
            log.write(text)


def test_another_proof_ends_the_run_when_it_is_logged(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, False), b=Expectation(RR, False))
    relays.watch.look(0)
    relays.log("a", f"[notice] {RR}\n")
    relays.log("b", f"[notice] Tor 0.4.9\n[notice] {EWMA[:-3]}")
    relays.watch.look(20)
    relays.log("b", f"{EWMA[-3:]}\n")
    with pytest.raises(RunRefusedError) as caught:
        relays.watch.look(21)
    assert caught.value.message == (
        f"Tor logged ['{EWMA}'] instead of \"{RR}\": b (detected during the run, which was stopped)"
    )
    assert caught.value.log_tail == ["[notice] Tor 0.4.9", f"[notice] {EWMA}"]


def test_a_proof_that_no_relay_logs_ends_the_run_when_it_is_due(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, False), b=Expectation(RR, False))
    relays.log("a", "[notice] Tor 0.4.9\n")
    relays.watch.look(DUE_S - 1)
    with pytest.raises(RunRefusedError, match=f'none of these logged "{RR}": a, b'):
        relays.watch.look(DUE_S)


def test_a_relay_that_is_late_may_still_come(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, False), b=Expectation(RR, False))
    relays.log("b", f"[notice] {RR}\n")
    for second in (20, DUE_S, DUE_S + 1000):
        relays.watch.look(second)


def test_of_exits_one_is_waited_for_until_streams_have_ended(tmp_path: Path) -> None:
    expectations = {
        "exit1": Expectation(LIST, False, ProofRequirement.ONE_OF),
        "exit2": Expectation(LIST, False, ProofRequirement.ONE_OF),
        "guard": Expectation(LIST, False, ProofRequirement.MAY),
    }
    idle, busy = tmp_path / "idle", tmp_path / "busy"
    for folder in (idle, busy):
        folder.mkdir()
    relays = Relays(idle, **expectations)
    relays.watch.look(DUE_S + 100)
    with pytest.raises(RunRefusedError, match=f'none of these logged "{LIST}": exit1, exit2'):
        relays.watch.look(200 + WATCHED_LATE_S)
    relays = Relays(busy, **expectations)
    relays.log("exit2", f"[notice] {LIST}\n")
    relays.watch.look(200 + WATCHED_LATE_S)


def test_an_exit_has_until_the_end_however_slow_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "onionlab.runs.run_builder.ProofWatch",
        lambda *_, **deadlines: SimpleNamespace(look=deadlines),
    )
    settings = load("starvation", root=REPOSITORY).levels["r20-s5"].settings
    assert isinstance(settings, Settings)
    builder: Any = run_builder(REPOSITORY, Request("starvation"))
    due = builder.watch(tmp_path, "r20-s5", SimpleNamespace(expectations={}))
    # On the embedded engine, the exit of network 1 logged its proof (the line that shows its
    # variant) at 1252 s. That is 922 s after the measured span, so exits have until the end of the
    # run.
    assert due["an_exit_s"] == settings.time.stop_s > 1252 > settings.time.measured_end_s
    assert due["every_relay_s"] == settings.time.bootstrap_s


def test_clients_are_left_to_the_end(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, True))
    relays.log("a", f"[notice] {EWMA}\n")
    relays.watch.look(DUE_S)


def test_lines_are_read_once(tmp_path: Path) -> None:
    relays = Relays(tmp_path, a=Expectation(RR, False))
    relays.log("a", f"{'x' * len(EWMA)}\n")
    relays.watch.look(1)
    # Replace the line that was already read by a wrong proof. The watch must not read this position
    # again.
    (tmp_path / "a" / "tor-x.1000.stdout").write_text(f"{EWMA}\n")
    relays.watch.look(2)
    relays.log("a", f"{RR}\n")
    relays.watch.look(3)
    # The watch no longer reads this log, because the proof was found in it.
    relays.log("a", f"{EWMA}\n")
    relays.watch.look(4)
