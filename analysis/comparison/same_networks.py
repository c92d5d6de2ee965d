"""Pairing of imports that simulate the same networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from analysis.comparison.run_sets import RunSet

MIN_PAIRS = 2
"""One pair has no spread."""


def paired_by_network(a: RunSet, b: RunSet) -> tuple[RunSet, RunSet] | None:
    """Return two imports with seeds that identify their common networks.

    Returns None unless every network of the smaller side is also on the other side, and no network
    occurs twice.
    """
    if a.paired or b.paired or len(a.runs) < MIN_PAIRS or len(b.runs) < MIN_PAIRS:
        return None
    networks = [Counter(run.network for run in side.runs) for side in (a, b)]
    if any("" in side or max(side.values()) > 1 for side in networks):
        return None
    common = [run.network for run in a.runs if run.network in networks[1]]
    if len(common) < min(len(a.runs), len(b.runs)):
        return None
    numbers = {network: number for number, network in enumerate(common, 1)}
    return _numbered(a, numbers, 0), _numbered(b, numbers, len(a.runs))


def why_unpaired(a: RunSet, b: RunSet) -> str:
    """Return why imports with common networks are not paired; "" if they have none or are."""
    networks = [Counter(run.network for run in side.runs) for side in (a, b)]
    common = {network for network in networks[0] if network and network in networks[1]}
    if a.paired or b.paired or not common or paired_by_network(a, b) is not None:
        return ""
    twice = sorted({name for side in networks for name, count in side.items() if count > 1})
    if twice:
        why = f"{twice[0]} occurs more than once"
    else:
        smaller = min(len(a.runs), len(b.runs))
        why = f"only {len(common)} of {smaller} networks of the smaller side are on the other side"
    return f"not paired: {why}"


def _numbered(side: RunSet, numbers: Mapping[str, int], others: int) -> RunSet:
    """Replace seeds by the numbers of networks. Runs of other networks get larger numbers."""
    last = others + len(side.runs)
    seeds = {
        run.seed: numbers.get(run.network, last + place) for place, run in enumerate(side.runs, 1)
    }
    return side.model_copy(
        update={
            "paired": True,
            "runs": tuple(run.model_copy(update={"seed": seeds[run.seed]}) for run in side.runs),
            "values": tuple(v.model_copy(update={"seed": seeds[v.seed]}) for v in side.values),
        }
    )


def same_bytes(a: RunSet, b: RunSet) -> list[str]:
    """Return the simulations of B whose records are identical to one of A; only for imports."""
    if a.paired or b.paired:
        return []
    known = {run.records.get("import") for run in a.runs} - {None, ""}
    return [run.run_id for run in b.runs if run.records.get("import") in known]
