"""Whether runs can answer a statement at all: three rules, from the runs' own data.

A rule that cannot decide says nothing, and the answer is that of the tests. Definitions and
reasons: docs/reference/claims.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.formats.columns import Outcome
from analysis.inference.effects import paired_effect
from analysis.judgement.claims.claim import Obstacle, Point, Untestable
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.claims.statement import Contrast, Statement
from analysis.judgement.verdicts import LEVEL
from analysis.measures.data import ALL
from analysis.measures.leeway import Displacement, Leeway


def at_a_bound(statement: Statement, evidence: Evidence) -> Untestable | None:
    """Whether the share is 0% in all runs that are compared, or 100%.

    A statement about a value of that share is answered by just such runs.
    """
    if not evidence.bounded or statement.against_value:
        return None
    values = np.concatenate(evidence.arrays(statement.points))
    if values[0] not in (0.0, 1.0) or values.min() < values.max():
        return None
    label = evidence.metric.label
    head = f"{label[0].lower()}{label[1:]} is {100 * values[0]:g}% in all of these runs"
    return Untestable(Obstacle.AT_A_BOUND, head)


def cannot_differ(statement: Statement, evidence: Evidence) -> Untestable | None:
    """Return why two variants that a statement compares cannot differ, or None if they can."""
    for contrast in statement.contrasts:
        found = _same_streams(contrast, evidence) or _saturated(contrast, evidence)
        if found is not None:
            return found
    return None


def _same_streams(contrast: Contrast, evidence: Evidence) -> Untestable | None:
    """Whether in each network the same streams of the same clients fail under both variants."""
    outcomes = evidence.metric.share_of
    runs = [_leeways(point, contrast, evidence) for point in contrast]
    if not outcomes or None in [run for of_point in runs for run in of_point]:
        return None
    one, other = (
        [run.failed(evidence.class_name, outcomes) for run in of_point if run is not None]
        for of_point in runs
    )
    streams = sum(len(places) for seed in one for places in seed.values())
    if not streams or one != other:
        return None
    clients = sum(map(len, one))
    verb = "time out" if outcomes == (Outcome.TIMEOUT,) else "fail"
    return Untestable(
        Obstacle.SAME_STREAMS,
        f"the same streams {verb} under both variants at {_level(contrast, evidence)}",
        f"{streams} streams of {clients} clients in {len(one)} networks, by client and order of "
        "start",
    )


def _saturated(contrast: Contrast, evidence: Evidence) -> Untestable | None:
    """Whether under both variants the network carries no more than it does, whoever gets it."""
    if not evidence.metric.carried or evidence.class_name != ALL or not evidence.margin.relative:
        return None
    lost, by = [], set()
    for point in contrast:
        found = [
            None if run is None else run.displacement for run in _leeways(point, contrast, evidence)
        ]
        known = [one for one in found if one is not None]
        if len(known) < len(found) or not _all_lost([one.share for one in known], evidence):
            return None
        lost.append(_lost(point, known, evidence))
        by |= {one.by for one in known}
    if len(by) != 1:
        return None
    return Untestable(
        Obstacle.SATURATED,
        f"throughput is saturated at {_level(contrast, evidence)}",
        f"{_carried(contrast, evidence)}; of each byte more for others {by.pop()} clients lose "
        f"{' and '.join(lost)}",
    )


def _all_lost(shares: Sequence[float], evidence: Evidence) -> bool:
    """Whether what some gain is shown to be lost by others, and all of it but for the margin.

    Args:
        shares: lost of each byte gained, one for each network.
        evidence: whose margin it is.
    """
    if len(shares) < 2 or float(np.mean(shares)) < 1 - evidence.margin.value:
        return False
    return paired_effect(shares).p_above(0.0) <= LEVEL


def _leeways(point: Point, contrast: Contrast, evidence: Evidence) -> list[Leeway | None]:
    """Return what the point's runs say, for each network that both points have."""
    return [evidence.leeway(point, seed) for seed in evidence.seeds(contrast)]


def _level(contrast: Contrast, evidence: Evidence) -> str:
    return evidence.labels.level(contrast[0].level)


def _lost(point: Point, found: Sequence[Displacement], evidence: Evidence) -> str:
    share = float(np.mean([one.share for one in found]))
    return f"{share:.2f} ({evidence.labels.variant(point.variant)})"


def _carried(contrast: Contrast, evidence: Evidence) -> str:
    """What clients get under either variant, and what relays could carry, where that is known."""
    values = np.concatenate(evidence.arrays(contrast))
    words = f"clients get {_mega(values.min())} to {_mega(values.max())} MB/s"
    runs = [run for point in contrast for run in _leeways(point, contrast, evidence)]
    carriers = {run.carriers for run in runs if run is not None}
    if len(carriers) == 1 and (most := carriers.pop()) is not None:
        words += f", {most.role} relays can carry {_mega(most.bytes_per_s)} with all headers"
    return words


def _mega(bytes_per_s: float) -> str:
    """A rate in MB/s, three digits of it."""
    return f"{bytes_per_s / 1e6:#.3g}".rstrip(".")
