"""Contention in a run: which streams fail, and which class absorbs leftover capacity.

A claim about a difference can only be tested in runs in which a difference is possible.
docs/reference/claims.md defines the quantities and the conclusions drawn from them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Floats, Ints
from analysis.formats.study import Level
from analysis.measures.data import ALL, ClassData

WINDOW_S = 5.0
"""Length of the windows in which bytes of classes are compared.

This is five intervals of TGen's heartbeats, and several round trips of a congested network. Shorter
windows reflect when bytes were counted rather than who received them. Longer windows give fewer
observations.
"""

MIN_WINDOWS = 3
"""Minimum number of windows for `crowded_out_share`. A line through two points always fits."""


@dataclass(frozen=True)
class CrowdingOut:
    """Throughput that one class loses when the others gain, measured over windows.

    Attributes:
        by: the class that loses throughput: the class, except for background load, whose clients
            have an open download for the largest share of the measured span.
        share: bytes that this class loses for each additional byte that the other classes receive:
            1 if the links are full, and 0 if the other classes use idle capacity.
    """

    by: str
    share: float


@dataclass(frozen=True)
class Bottleneck:
    """The circuit position (guard, middle or exit) whose relays have the lowest total capacity."""

    role: str
    bytes_per_s: float


@dataclass(frozen=True)
class Contention:
    """Data that show whether variants can differ in a run.

    Attributes:
        fates: class of clients, or ``ALL`` -> client -> outcomes of its measured streams, ordered
            by start.
        crowding_out: None if unknown, for example because there is only one class, or because a log
            lacks the bytes read.
        bottleneck: None if the study does not contain the relays' capacities.
    """

    fates: Mapping[str, Mapping[str, tuple[str, ...]]]
    crowding_out: CrowdingOut | None
    bottleneck: Bottleneck | None = None

    def failed(self, class_name: str, outcomes: Collection[str]) -> dict[str, tuple[int, ...]]:
        """Return client -> the indices in ``fates`` of its streams with one of these outcomes.

        Clients without such streams are omitted.
        """
        return {
            client: places
            for client, fates in self.fates.get(class_name, {}).items()
            if (places := tuple(i for i, fate in enumerate(fates) if fate in outcomes))
        }


ContentionByRun = Mapping[tuple[str, str, int], Contention]
"""Contention by level, variant and network."""


def combine_repeats(runs: Sequence[Contention]) -> Contention:
    """Combine the repeats of one network.

    A client counts as a different client in each repeat. ``crowding_out`` has the mean share, or is
    None if it is unknown in a repeat, or if the repeats have different classes in ``by``.
    """
    if len(runs) == 1:
        return runs[0]
    fates: dict[str, dict[str, tuple[str, ...]]] = {}
    for repeat, run in enumerate(runs, 1):
        for class_name, fates_by_client in run.fates.items():
            fates.setdefault(class_name, {}).update(
                {f"{client}, repeat {repeat}": own for client, own in fates_by_client.items()}
            )
    found = [run.crowding_out for run in runs if run.crowding_out is not None]
    crowding_out = None
    if len(found) == len(runs) and len({one.by for one in found}) == 1:
        crowding_out = CrowdingOut(found[0].by, float(np.mean([one.share for one in found])))
    return Contention(fates, crowding_out, runs[0].bottleneck)


def measure_contention(data: Mapping[str, ClassData], level: Level) -> Contention:
    """Return the contention in a run. ``data`` has its classes, as returned by ``load_run``."""
    return Contention(
        {name: _fates(class_data) for name, class_data in data.items()},
        _crowding_out(data),
        _bottleneck(level.capacities_bytes_per_s),
    )


def _fates(data: ClassData) -> dict[str, tuple[str, ...]]:
    """Return client -> outcomes of its measured streams, ordered by start."""
    streams = data.measured
    order = np.lexsort((streams.start_s, streams.client))
    fates: dict[str, tuple[str, ...]] = {}
    for place in order:
        client = data.clients[streams.client[place]]
        fates[client] = (*fates.get(client, ()), str(streams.outcome[place]))
    return fates


def _crowding_out(data: Mapping[str, ClassData]) -> CrowdingOut | None:
    if any(class_data.unknown_bytes_reason for class_data in data.values()):
        return None
    reads = {
        name: read
        for name, class_data in data.items()
        if name != ALL
        and (class_data.streams.client.size or class_data.load)
        and (read := class_data.bytes_read)
    }
    # Background load cannot absorb leftover capacity, because its models determine its amount.
    elastic = [name for name in sorted(reads) if not data[name].load]
    if len(reads) < 2 or not elastic:
        return None
    always = max(elastic, key=lambda name: _open_share(data[name]))
    edges = window_edges(data[always].begin_s, data[always].end_s)
    got = {name: np.diff(read.by(edges)) for name, read in reads.items()}
    others = np.sum([got[name] for name in sorted(got) if name != always], axis=0)
    share = crowded_out_share(others, got[always])
    return None if share is None else CrowdingOut(always, share)


def window_edges(begin_s: float, end_s: float) -> Floats:
    """Return the edges of the whole windows of a measured span, shape (windows + 1,)."""
    count = int((end_s - begin_s) / WINDOW_S)
    return np.asarray(begin_s + WINDOW_S * np.arange(count + 1), dtype=np.float64)


def _open_share(data: ClassData) -> float:
    """Return the share of the measured span with an open stream, averaged over clients."""
    streams = data.streams
    shares = [
        open_s(streams.start_s[own], streams.end_s[own], data.begin_s, data.end_s)
        for own in (streams.client == client for client in np.unique(streams.client))
    ]
    return float(np.mean(shares)) / (data.end_s - data.begin_s)


def crowded_out_share(others: Floats, own: Floats) -> float | None:
    """Return the bytes that a class loses for each additional byte of the other classes.

    This is the negated slope of the least-squares line of ``own`` against ``others``, the bytes in
    each window, shape (windows,). It is None if there are fewer than three windows, or if
    ``others`` is constant.
    """
    if others.size < MIN_WINDOWS or np.ptp(others) == 0:
        return None
    away = others - others.mean()
    # Use correctly rounded sums, as BLAS sums differ between processors.
    return -math.fsum(away * (own - own.mean())) / math.fsum(away * away)


def open_s(start_s: Floats, end_s: Floats, begin_s: float, stop_s: float) -> float:
    """Return how long at least one of the streams, shape (n,), is open within [begin, stop]."""
    order: Ints = np.argsort(start_s, kind="stable")
    starts, ends = (np.clip(times[order], begin_s, stop_s) for times in (start_s, end_s))
    # Count only the part of each stream that no earlier stream covers.
    covered = np.concatenate(([begin_s], np.maximum.accumulate(ends)[:-1]))
    return float(np.sum(np.maximum(0.0, ends - np.maximum(starts, covered))))


def _bottleneck(capacities_bytes_per_s: Mapping[str, float]) -> Bottleneck | None:
    """Return the bottleneck, or None if the capacity of any position is unknown."""
    positions = {
        "guard": ("guard", "exitguard"),
        "middle": ("middle",),
        "exit": ("exit", "exitguard"),
    }
    totals = {
        position: sum(capacities_bytes_per_s.get(role, 0.0) for role in roles)
        for position, roles in positions.items()
    }
    if not all(totals.values()):
        return None
    return Bottleneck(*min(totals.items(), key=lambda one: one[1]))
