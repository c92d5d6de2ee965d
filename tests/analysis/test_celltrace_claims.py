"""The text's claims, on numbers made so that each holds, or does not."""

from __future__ import annotations

import pytest

from analysis.celltrace.claims import CLAIMS, answer_all
from analysis.celltrace.statistics import Group, Stage, Summary
from analysis.celltrace.tables import SpikeRow, TimeRow, TraceTable


def row(
    level: str, group: Group, median_ms: float, share: float = 1.0, stage: Stage = Stage.TOTAL
) -> TimeRow:
    summary = Summary(10, 0.0, 0.0, median_ms, median_ms, median_ms, median_ms)
    return TimeRow(level, "stock", 1, "guard", group, stage, 3, share, summary)


def table(kist_ms: float, quiet_ms: float, period_s: float, share: float) -> TraceTable:
    made = TraceTable()
    made.times = [
        row("kist", Group.ALL, kist_ms),
        row("vanilla", Group.ALL, 1.0),
        row("vanilla", Group.QUIET, quiet_ms),
        row("vanilla", Group.BUSY, 1.0),
        row("kist", Group.ALL, 1.0, share, Stage.OUTBUF_FLUSH),
    ]
    made.spikes = [SpikeRow("vanilla", "stock", 1, "guard", period_s, 0.5, 0.1)]
    return made


def verdicts(of: TraceTable) -> list[str]:
    return [answer.verdict for answer in answer_all(of)]


def test_as_the_text_says() -> None:
    assert verdicts(table(34.0, 2.0, 45.0, 0.9)) == ["holds in 1 of 1"] * len(CLAIMS)


def test_the_contrary() -> None:
    assert verdicts(table(1.5, 0.5, 20.0, 0.1)) == ["holds in 0 of 1"] * len(CLAIMS)


@pytest.mark.parametrize("strength", [0.05, 0.5])
def test_a_period_has_to_stand_out(strength: float) -> None:
    made = table(34.0, 2.0, 45.0, 0.9)
    made.spikes = [SpikeRow("vanilla", "stock", 1, "guard", 45.0, strength, 0.1)]
    assert verdicts(made)[2] == f"holds in {int(strength > 0.1)} of 1"


def test_without_runs_nothing_is_answered() -> None:
    assert all(verdict.startswith("not asked") for verdict in verdicts(TraceTable()))
    made = table(34.0, 2.0, float("nan"), 0.9)
    assert verdicts(made)[2].startswith("not asked")
