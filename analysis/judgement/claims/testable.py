"""Three rules that decide whether runs can answer a statement at all.

If no rule applies, the tests decide. docs/reference/claims.md has the definitions and reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.formats.columns import Outcome
from analysis.inference.effects import paired_effect
from analysis.judgement.claims.claim import Obstacle, Untestable
from analysis.judgement.claims.evidence import Evidence
from analysis.judgement.claims.statement import Contrast, Statement
from analysis.judgement.verdicts import LEVEL
from analysis.measures.data import ALL


def at_a_bound(statement: Statement, evidence: Evidence) -> Untestable | None:
    """Return an obstacle if a share is 0% in all compared runs, or 100% in all of them.

    A statement that compares the share with a value of the paper has no obstacle, because runs with
    0% or 100% can answer it.
    """
    if not evidence.policy.bounded or len(statement.points) == 1:
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
    """Return an obstacle if the same streams fail under both variants in every network.

    Return None if the metric is not a share of failed streams, if no stream fails, or if the
    outcomes in a run are unknown.
    """
    outcomes = evidence.metric.share_of
    runs = [evidence.contention(point, contrast) for point in contrast]
    if not outcomes or None in [run for point_runs in runs for run in point_runs]:
        return None
    one, other = (
        [run.failed(evidence.claim.class_name, outcomes) for run in point_runs if run is not None]
        for point_runs in runs
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
    """Return an obstacle if the network is saturated under both variants.

    The rule is only for the total throughput: in a saturated network, all variants have the same.
    """
    if (
        not evidence.metric.carried
        or evidence.claim.class_name != ALL
        or not evidence.policy.margin.relative
    ):
        return None
    lost, by = [], set()
    for point in contrast:
        found = [
            None if run is None else run.crowding_out
            for run in evidence.contention(point, contrast)
        ]
        known = [one for one in found if one is not None]
        if len(known) < len(found) or not _all_lost([one.share for one in known], evidence):
            return None
        share = float(np.mean([one.share for one in known]))
        lost.append(f"{share:.2f} ({evidence.labels.variant(point.variant)})")
        by |= {one.by for one in known}
    if len(by) != 1:
        return None
    return Untestable(
        Obstacle.SATURATED,
        f"throughput is saturated at {_level(contrast, evidence)}",
        f"{_carried(contrast, evidence)}; for each extra byte of others, {by.pop()} clients lose "
        f"{' and '.join(lost)}",
    )


def _all_lost(shares: Sequence[float], evidence: Evidence) -> bool:
    """Return whether a class is shown to lose about as many bytes as the other classes gain.

    The loss must be significant, and its mean must be at least 1 minus the margin.

    shares: for each network, the bytes lost for each byte that the other classes gain.
    """
    if len(shares) < 2 or float(np.mean(shares)) < 1 - evidence.policy.margin.value:
        return False
    return paired_effect(shares).p_above(0.0) <= LEVEL


def _level(contrast: Contrast, evidence: Evidence) -> str:
    return evidence.labels.level(contrast[0].level)


def _carried(contrast: Contrast, evidence: Evidence) -> str:
    """Return a phrase with the throughput of clients and the capacity of relays."""
    values = np.concatenate(evidence.arrays(contrast))
    text = f"clients get {_mega(values.min())} to {_mega(values.max())} MB/s"
    runs = [run for point in contrast for run in evidence.contention(point, contrast)]
    bottlenecks = {run.bottleneck for run in runs if run is not None}
    if len(bottlenecks) == 1 and (bottleneck := bottlenecks.pop()) is not None:
        text += (
            f", {bottleneck.role} relays can carry {_mega(bottleneck.bytes_per_s)} with all headers"
        )
    return text


def _mega(bytes_per_s: float) -> str:
    """Format a rate in MB/s with three significant digits."""
    return f"{bytes_per_s / 1e6:#.3g}".rstrip(".")
