"""Whether a choice could matter in a run: whose streams fail, and who takes what is left.

A claim of a difference needs runs in which there can be one. Definitions, and what is concluded
from them: docs/reference/claims.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Floats, Ints
from analysis.formats.study import Level
from analysis.measures.data import ALL, BytesRead, ClassData

WINDOW_S = 5.0
"""Five of TGen's heartbeats, and several round trips of a congested network.

Shorter ones tell when a byte was counted rather than who got it; longer ones are fewer.
"""

LEAST_WINDOWS = 3
"""A line through two points is always exact."""


@dataclass(frozen=True)
class Displacement:
    """How much one class loses of what the others gain, from window to window.

    Attributes:
        by: the class that takes what is left: of all, the one whose clients have a download open
            for most of the measured span.
        share: bytes that it loses for each byte more that the others get; 1: the links carry no
            more than they do, 0: the others get theirs from what was unused.
    """

    by: str
    share: float


@dataclass(frozen=True)
class Carriers:
    """The relays that all traffic has to pass and that can carry least together."""

    role: str
    bytes_per_s: float


@dataclass(frozen=True)
class Leeway:
    """What one run says of whether a choice could matter in it.

    Attributes:
        fates: class of clients, or ``ALL`` -> client -> outcomes of its streams that count, in the
            order in which they started.
        displacement: None if it is not known: there is one class, what the others get never
            changes, or not all logs say how much was read.
        carriers: None where the study does not say what relays can carry.
    """

    fates: Mapping[str, Mapping[str, tuple[str, ...]]]
    displacement: Displacement | None
    carriers: Carriers | None = None

    def failed(self, class_name: str, outcomes: Collection[str]) -> dict[str, tuple[int, ...]]:
        """Client -> which of its streams ended so, by order of start; clients with any alone."""
        ended = {
            client: tuple(place for place, fate in enumerate(fates) if fate in outcomes)
            for client, fates in self.fates.get(class_name, {}).items()
        }
        return {client: places for client, places in ended.items() if places}


Leeways = Mapping[tuple[str, str, int], Leeway]
"""Level, variant and network -> what its runs say."""


def of_repeats(runs: Sequence[Leeway]) -> Leeway:
    """Return what the repeats of one network say together; a client of each counts for itself."""
    if len(runs) == 1:
        return runs[0]
    fates: dict[str, dict[str, tuple[str, ...]]] = {}
    for repeat, run in enumerate(runs, 1):
        for class_name, of_clients in run.fates.items():
            fates.setdefault(class_name, {}).update(
                {f"{client}, repeat {repeat}": own for client, own in of_clients.items()}
            )
    found = [run.displacement for run in runs if run.displacement is not None]
    displacement = None
    if len(found) == len(runs) and len({one.by for one in found}) == 1:
        displacement = Displacement(found[0].by, float(np.mean([one.share for one in found])))
    return Leeway(fates, displacement, runs[0].carriers)


def leeway(data: Mapping[str, ClassData], level: Level) -> Leeway:
    """What a run says of whether a choice could matter in it.

    Args:
        data: the run's classes, ``ALL`` among them, as ``load_run`` gives them.
        level: the run's.
    """
    return Leeway(
        {name: _fates(of_class) for name, of_class in data.items()},
        _displacement(data),
        _carriers(level.capacities_bytes_per_s),
    )


def _fates(data: ClassData) -> dict[str, tuple[str, ...]]:
    """Client -> outcomes of its streams that count, in the order in which they started."""
    streams = data.measured
    order = np.lexsort((streams.start_s, streams.client))
    fates: dict[str, list[str]] = {}
    for place in order:
        client = data.clients[streams.client[place]]
        fates.setdefault(client, []).append(str(streams.outcome[place]))
    return {client: tuple(outcomes) for client, outcomes in fates.items()}


def _displacement(data: Mapping[str, ClassData]) -> Displacement | None:
    if any(of_class.unknown_bytes_reason for of_class in data.values()):
        return None
    reads = {
        name: read
        for name, of_class in data.items()
        if name != ALL
        and (of_class.streams.client.size or of_class.load)
        and (read := of_class.bytes_read)
    }
    # What a class that is load alone asks for its models say, not what the links have left.
    elastic = [name for name in sorted(reads) if not data[name].load]
    if len(reads) < 2 or not elastic:
        return None
    always = max(elastic, key=lambda name: _open_share(data[name]))
    got = {name: _windows(data[name], read) for name, read in reads.items()}
    others = np.sum([got[name] for name in sorted(got) if name != always], axis=0)
    share = displaced_share(others, got[always])
    return None if share is None else Displacement(always, share)


def _windows(data: ClassData, read: BytesRead) -> Floats:
    """What a class got in each whole window of the measured span, in bytes, shape (windows,)."""
    windows: Floats = np.diff(read.by(window_edges(data.begin_s, data.end_s)))
    return windows


def window_edges(begin_s: float, end_s: float) -> Floats:
    """Where the whole windows of a measured span begin and end, shape (windows + 1,)."""
    count = int((end_s - begin_s) / WINDOW_S)
    return np.asarray(begin_s + WINDOW_S * np.arange(count + 1), dtype=np.float64)


def _open_share(data: ClassData) -> float:
    """Share of the measured span in which a client of the class has a stream open, in the mean."""
    streams = data.streams
    shares = [
        open_s(streams.start_s[own], streams.end_s[own], data.begin_s, data.end_s)
        for own in (streams.client == client for client in np.unique(streams.client))
    ]
    return float(np.mean(shares)) / (data.end_s - data.begin_s)


def displaced_share(others: Floats, own: Floats) -> float | None:
    """Bytes that are lost for each byte more that others get: a least-squares line's fall.

    Args:
        others: what they got in each window, shape (windows,).
        own: what was got beside them, likewise.

    Returns:
        None where there are fewer than three windows, or the others got the same in all of them.
    """
    if others.size < LEAST_WINDOWS or np.ptp(others) == 0:
        return None
    away = others - others.mean()
    # Sums that are rounded once: those of a BLAS differ between processors.
    return -math.fsum(away * (own - own.mean())) / math.fsum(away * away)


def open_s(start_s: Floats, end_s: Floats, begin_s: float, stop_s: float) -> float:
    """How long at least one of some streams is open within [begin, stop].

    Args:
        start_s: of each stream, shape (n,).
        end_s: likewise.
        begin_s: of the span.
        stop_s: its end.
    """
    order: Ints = np.argsort(start_s, kind="stable")
    starts, ends = (np.clip(times[order], begin_s, stop_s) for times in (start_s, end_s))
    # Of each stream that part counts that none before it covers.
    covered = np.concatenate(([begin_s], np.maximum.accumulate(ends)[:-1]))
    return float(np.sum(np.maximum(0.0, ends - np.maximum(starts, covered))))


def _carriers(capacities_bytes_per_s: Mapping[str, float]) -> Carriers | None:
    """Of the three positions of a circuit the one whose relays can carry least."""
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
    least = min(totals, key=lambda position: totals[position])
    return Carriers(least, totals[least])
