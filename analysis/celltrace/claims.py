"""What the text of 2019 says of its guard, asked of each seed's guards.

A claim is one function of a study's numbers that gives, for each seed, whether it holds and the
number that decides. The answer counts seeds; with n seeds that all agree, chance alone would agree
as well once in 2^(n - 1) times, which is why a few seeds are no proof. A seed for which a number
cannot be given is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from analysis.celltrace.statistics import Group, Stage
from analysis.celltrace.tables import TimeRow, TraceTable

ROLE = "guard"
"""What the text measured."""
KIST, VANILLA = "kist", "vanilla"
"""Names of the levels that are compared."""
FAR_BELOW = 2.0
"""A median `far below` another is so by this factor at least; in the text it is 34."""
SPIKE_S = (40.0, 50.0)
"""`Roughly every 45 seconds`."""


@dataclass(frozen=True)
class Finding:
    """One seed's answer. value: the number that decides, in words."""

    seed: int
    holds: bool | None
    value: str


@dataclass(frozen=True)
class Claim:
    """One thing the text says; answer: a finding for each run or pair of runs that can tell."""

    id: str
    statement: str
    answer: Callable[[TraceTable], Iterator[Finding]]


@dataclass(frozen=True)
class Answer:
    """A claim with its findings."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """In words."""
        known = [finding.holds for finding in self.findings if finding.holds is not None]
        if not known:
            return "not asked: there are no such runs, or they are too short"
        return f"holds in {sum(known)} of {len(known)}"


def _rows(table: TraceTable, level: str, group: Group, stage: Stage) -> dict[int, TimeRow]:
    return {
        row.seed: row
        for row in table.times
        if (row.role, row.level, row.group, row.stage) == (ROLE, level, group, stage)
        and row.summary.count
    }


def _vanilla_is_faster(table: TraceTable) -> Iterator[Finding]:
    kist = _rows(table, KIST, Group.ALL, Stage.TOTAL)
    vanilla = _rows(table, VANILLA, Group.ALL, Stage.TOTAL)
    for seed in sorted(kist.keys() & vanilla.keys()):
        one, other = kist[seed].summary.median_ms, vanilla[seed].summary.median_ms
        yield Finding(seed, one > FAR_BELOW * other, f"KIST {one:.3g} ms, Vanilla {other:.3g} ms")


def _quiet_waits_longer(table: TraceTable) -> Iterator[Finding]:
    for level in dict.fromkeys(row.level for row in table.times):
        quiet = _rows(table, level, Group.QUIET, Stage.TOTAL)
        busy = _rows(table, level, Group.BUSY, Stage.TOTAL)
        for seed in sorted(quiet.keys() & busy.keys()):
            one, other = quiet[seed].summary.median_ms, busy[seed].summary.median_ms
            yield Finding(seed, one > other, f"{level}: quiet {one:.3g} ms, busy {other:.3g} ms")


def _vanilla_has_spikes(table: TraceTable) -> Iterator[Finding]:
    for row in table.spikes:
        if (row.role, row.level) != (ROLE, VANILLA):
            continue
        if np.isnan(row.period_s):
            yield Finding(row.seed, None, "the measured span is too short")
            continue
        low, high = SPIKE_S
        holds = low <= row.period_s <= high and row.strength > row.noise
        yield Finding(row.seed, holds, f"{row.period_s:.0f} s, autocorrelation {row.strength:.2f}")


def _kist_waits_in_outbuf(table: TraceTable) -> Iterator[Finding]:
    for seed, row in sorted(_rows(table, KIST, Group.ALL, Stage.OUTBUF_FLUSH).items()):
        yield Finding(seed, row.share > 0.5, f"{row.share:.1%} of the time")


CLAIMS = (
    Claim(
        "vanilla-faster",
        f"Vanilla's median is far below KIST's (by a factor of {FAR_BELOW:g} or more).",
        _vanilla_is_faster,
    ),
    Claim(
        "quiet-slower",
        "Cells of quiet circuits stay inside longer than those of busy ones (medians).",
        _quiet_waits_longer,
    ),
    Claim(
        "vanilla-spikes",
        "Under Vanilla there is a spike of delays roughly every 45 s (40 s to 50 s).",
        _vanilla_has_spikes,
    ),
    Claim(
        "kist-outbuf-flush",
        "Under KIST most of the time is spent between outbuf and flush (the author's guess).",
        _kist_waits_in_outbuf,
    ),
)


def answer_all(table: TraceTable) -> tuple[Answer, ...]:
    """Every claim on a study's traced runs."""
    return tuple(Answer(claim, tuple(claim.answer(table))) for claim in CLAIMS)
