"""Metrics of cells inside traced relays; their classes are roles of relays.

docs/explanation/celltrace.md has the definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from analysis.celltrace.queueing import ServiceInstants, Waits
from analysis.celltrace.statistics import (
    MIN_SPAN_S,
    Group,
    Relayed,
    Stage,
    chance_longer,
    delay_autocorrelation,
)
from analysis.measures.data import ClassData
from analysis.measures.metric import NUMBER, SHARE, TIME, Metric, Statistic, time_at

SPIKE_S = (40.0, 50.0)
"""The text of 2019 says "roughly every 45 seconds"."""


def _is_relayed(data: ClassData) -> bool:
    return data.relayed is not None


_Metric = partial(Metric, when=_is_relayed, drawn=True)


def _relayed_statistic(compute: Callable[[Relayed], Statistic]) -> Callable[[ClassData], Statistic]:
    def compute_class(data: ClassData) -> Statistic:
        if data.relayed is None or not data.relayed.time_s.size:
            return Statistic(None, "no cell was relayed in the measured span")
        return compute(data.relayed)

    return compute_class


def _cell_time(q: float) -> Callable[[ClassData], Statistic]:
    return _relayed_statistic(lambda cells: Statistic(float(np.quantile(cells.total_ms, q)) / 1000))


@_relayed_statistic
def _quiet_longer(cells: Relayed) -> Statistic:
    quiet, busy = (cells.circuits.members(group) for group in (Group.QUIET, Group.BUSY))
    if not busy.any():
        return Statistic(None, "no circuit has more cells than the quiet ones")
    return Statistic(chance_longer(cells.total_ms[quiet], cells.total_ms[busy]))


@_relayed_statistic
def _flush_share(cells: Relayed) -> Statistic:
    total_ms = float(cells.total_ms.sum())
    if total_ms == 0:
        return Statistic(None, "no cell spent any time inside a relay")
    return Statistic(float(cells.stages_ms[Stage.OUTBUF_FLUSH].sum()) / total_ms)


@_relayed_statistic
def _spike(cells: Relayed) -> Statistic:
    found = delay_autocorrelation(cells.time_s, cells.total_ms)
    if found is None:
        return Statistic(
            None, f"cells arrived for less than {MIN_SPAN_S} s, or all took equally long"
        )
    lags, strength = found
    inside = (lags >= SPIKE_S[0]) & (lags <= SPIKE_S[1])
    # A period of half or a third of the length also appears here, but more strongly at its own lag.
    rival = max(cells.noise, float(strength[~inside].max()))
    return Statistic(max(0.0, float(strength[inside].max())) / rival)


NOT_SENT = Statistic(None, "no cell went towards a client in the measured span")


def _served_statistic(
    compute: Callable[[ServiceInstants], float],
) -> Callable[[ClassData], Statistic]:
    def compute_class(data: ClassData) -> Statistic:
        if data.served is None or not data.served.cells.size:
            return NOT_SENT
        return Statistic(compute(data.served))

    return compute_class


@_served_statistic
def _cells_at_once(instants: ServiceInstants) -> float:
    return float(np.average(instants.cells, weights=instants.cells))


@_served_statistic
def _circuits_waiting(instants: ServiceInstants) -> float:
    return float(np.average(instants.waiting, weights=instants.cells))


NO_ARRIVALS = Statistic(None, "the records lack arrival times of cells: extract them again")
"""Used for records from versions that did not extract arrivals."""


def _waits_statistic(compute: Callable[[Waits], Statistic]) -> Callable[[ClassData], Statistic]:
    def compute_class(data: ClassData) -> Statistic:
        if data.waits is None or not data.waits.queue_s.size:
            return NOT_SENT
        return compute(data.waits)

    return compute_class


@_waits_statistic
def _kernel_wait(waits: Waits) -> Statistic:
    if waits.kernel_s is None:
        return NO_ARRIVALS
    if waits.kernel_mean_s is None:
        share = waits.known_kernel_s.size / waits.queue_s.size
        return Statistic(None, f"traced relays read {share:.1%} of its cells towards clients")
    return Statistic(waits.kernel_mean_s)


METRICS: tuple[Metric, ...] = (
    _Metric(
        name="cell_time_p50_s",
        label="Time of cells inside a relay, median",
        unit="s",
        better="lower",
        judged=time_at(0.5),
        compute=_cell_time(0.5),
    ),
    _Metric(
        name="cell_time_p99_s",
        label="Time of cells inside a relay, p99",
        unit="s",
        better="lower",
        judged=time_at(0.99),
        compute=_cell_time(0.99),
    ),
    _Metric(
        name="cell_quiet_longer",
        label="Chance that a quiet circuit's cell is inside longer than a busy one's",
        unit="1",
        better="",
        judged=SHARE,
        compute=_quiet_longer,
    ),
    _Metric(
        name="cell_flush_share",
        label="Share of that time from outbuf to kernel",
        unit="1",
        better="",
        judged=SHARE,
        compute=_flush_share,
    ),
    _Metric(
        name="cell_spike_45s",
        label="Autocorrelation of delays over 40 s to 50 s, against other lags and noise",
        unit="1",
        is_signed=True,
        better="",
        judged=NUMBER,
        compute=_spike,
    ),
    _Metric(
        name="cells_at_once",
        label="Cells that a channel is given in one instant, with this one",
        unit="1",
        better="",
        judged=NUMBER,
        compute=_cells_at_once,
    ),
    _Metric(
        name="circuits_waiting",
        label="Circuits that wait at a channel when a cell is served, with its own",
        unit="1",
        better="",
        judged=NUMBER,
        compute=_circuits_waiting,
    ),
    _Metric(
        name="cell_queue_wait_mean_s",
        label="Wait of cells towards clients in their circuit's queue, mean",
        unit="s",
        better="lower",
        judged=TIME,
        compute=_waits_statistic(lambda waits: Statistic(float(waits.queue_s.mean()))),
    ),
    _Metric(
        name="cell_outbuf_wait_mean_s",
        label="Wait of cells towards clients in the outbuf, mean",
        unit="s",
        better="lower",
        judged=TIME,
        compute=_waits_statistic(lambda waits: Statistic(float(waits.outbuf_s.mean()))),
    ),
    _Metric(
        name="cell_kernel_wait_mean_s",
        label="Wait of cells towards clients from the kernel to the next relay, mean",
        unit="s",
        better="lower",
        judged=TIME,
        compute=_kernel_wait,
    ),
)
