"""Imports whose simulations are of the same networks, as pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from analysis.comparison.run_sets import RunSet

MIN_PAIRS = 2
"""One pair has no spread to judge by."""


def paired_by_network(a: RunSet, b: RunSet) -> tuple[RunSet, RunSet] | None:
    """Two imports with seeds that mean the same in both: one for each network.

    None where nothing says that their networks are the same: where not each network of the smaller
    one is in the other too, or one has a network twice.
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
    """Why imports that share networks are not paired; "" where they share none, or are paired."""
    networks = [Counter(run.network for run in side.runs) for side in (a, b)]
    common = {network for network in networks[0] if network and network in networks[1]}
    if a.paired or b.paired or not common or paired_by_network(a, b) is not None:
        return ""
    twice = sorted({name for side in networks for name, count in side.items() if count > 1})
    if twice:
        why = f"{twice[0]} is there more than once"
    else:
        smaller = min(len(a.runs), len(b.runs))
        why = f"only {len(common)} of {smaller} networks of the smaller side are in the other"
    return f"not paired: {why}"


def _numbered(side: RunSet, numbers: Mapping[str, int], others: int) -> RunSet:
    """The set with the networks' numbers as seeds; what has none comes behind all others."""
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
    """Names of the simulations of B that are the same bytes as one of A; of imports only."""
    if a.paired or b.paired:
        return []
    known = {run.records.get("import") for run in a.runs} - {None, ""}
    return [run.run_id for run in b.runs if run.records.get("import") in known]
