"""What would cost less than what is asked for. A further way is one function more in `WAYS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from analysis.formats.plan_file import Request
from onionlab.errors import UserError
from onionlab.runs.costs.asking import Asked
from onionlab.runs.costs.estimate import Costs, Estimate

WORTH_SAYING_S = 3600.0
"""Least wall time of an estimate that proposes cheaper runs."""
WORTH_SHARE = 0.9
"""Largest share of the cost that a proposal may have."""
SMALL_SCALE = 0.1


@dataclass(frozen=True)
class Way:
    """Something else to ask for, as make takes it, and what it answers less well.

    at_least: its cost is the least that it may come to.
    """

    what: str
    request: Request
    at_least: bool = False


def smaller_network(asked: Asked) -> Iterator[Way]:
    """A tenth of the hosts."""
    if asked.experiment.kind is None and asked.experiment.scale > SMALL_SCALE:
        yield Way(f"SCALE={SMALL_SCALE:g}", replace(asked.request, scale=SMALL_SCALE))


def seeds_as_needed(asked: Asked) -> Iterator[Way]:
    """Yield NETWORKS=auto, which stops once the answer is known."""
    # With it comes all of SciPy's statistics, which takes longer than an estimate.
    from analysis.inference.sequential import FIRST_LOOK

    if len(asked.experiment.seeds) > FIRST_LOOK and len(asked.variants) > 1:
        request = replace(asked.request, seeds=FIRST_LOOK)
        yield Way(f"NETWORKS=auto, from {FIRST_LOOK} networks on", request, at_least=True)


def fewer_variants(asked: Asked) -> Iterator[Way]:
    """The baseline and one other."""
    baseline = asked.experiment.baseline
    others = [name for name in asked.variants if name != baseline]
    if len(others) > 1:
        pair = (baseline, others[0])
        yield Way(f"VARIANTS={','.join(pair)}", replace(asked.request, variants=pair))


WAYS: Sequence[Callable[[Asked], Iterator[Way]]] = (
    smaller_network,
    seeds_as_needed,
    fewer_variants,
)


def cheaper_ways(
    costs: Costs, asked: Sequence[Asked], estimate: Estimate, jobs: int | None
) -> list[tuple[Way, Estimate]]:
    """What would be cheaper, and its cost, where it comes to hours; each way for all requests."""
    if estimate.wall_s.middle < WORTH_SAYING_S:
        return []
    found = []
    for way in WAYS:
        changed = [(list(way(one)), one) for one in asked]
        ways = [one for each, _ in changed for one in each]
        if not ways:
            continue
        requests = [each[0].request if each else one.request for each, one in changed]
        try:
            other = costs.estimate(requests, jobs)
        except UserError:
            continue  # A network that is impossible at that scale.
        if other.wall_s.middle < WORTH_SHARE * estimate.wall_s.middle:
            found.append((ways[0], other))
    return found
