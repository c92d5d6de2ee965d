"""Metrics of parallel downloads of a client (docs/explanation/starvation.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from analysis.arrays import Floats
from analysis.formats.record_files import first_names
from analysis.measures.data import ClassData
from analysis.measures.downloads import (
    Downloads,
    completion_spread_s,
    first_done_s,
    jain_over_time,
    lead_of_last,
    served,
    shares_at,
    starvation,
)
from analysis.measures.metric import INDEX, NUMBER, SHARE, TIME, Metric, Statistic

_Metric = partial(Metric, when=lambda data: bool(data.side_by_side))


def _mean_over_clients(
    compute: Callable[[Downloads], float | None], reason: str = ""
) -> Callable[[ClassData], Statistic]:
    """Return a function that computes the mean of ``compute`` over clients with parallel downloads.

    There is no mean if ``compute`` returns None for any of these clients; ``reason`` says why.
    """

    def compute_client_mean(data: ClassData) -> Statistic:
        values = [compute(downloads) for downloads in data.side_by_side]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return Statistic(None, reason)
        left_out = first_names(data.not_side_by_side)
        note = f"without {left_out}, with a stream of unknown outcome or size" if left_out else ""
        return Statistic(float(np.mean(known)), note)

    return compute_client_mean


def _at_first_end(compute: Callable[[Floats], float | None]) -> Callable[[Downloads], float | None]:
    """Return a function of downloads that applies ``compute`` to the received share of each.

    The shares are those at the time at which the first download completes. If no download
    completes, the returned function gives None.
    """

    def compute_at_first_end(downloads: Downloads) -> float | None:
        first = first_done_s(downloads)
        return None if first is None else compute(shares_at(downloads, first))

    return compute_at_first_end


def _mean_jain(downloads: Downloads) -> float | None:
    _, index = jain_over_time(downloads)
    return float(index.mean()) if index.size else None


def _longest_gap_s(downloads: Downloads) -> float:
    return max(one.longest_gap_s for one in downloads)


NONE_DONE = "no stream completed"

METRICS: tuple[Metric, ...] = (
    _Metric(
        "starvation", "Starvation of the slowest stream", "1", "lower", SHARE,
        _mean_over_clients(_at_first_end(starvation), NONE_DONE),
    ),
    _Metric(
        "last_three_lead", "Lead of the last three streams", "1", "lower", SHARE,
        _mean_over_clients(
            _at_first_end(lead_of_last), "no stream completed, or there are only three streams"
        ),
        is_signed=True,
    ),
    _Metric(
        "served_streams", "Streams served at a time", "streams", "higher", NUMBER,
        _mean_over_clients(_at_first_end(served), NONE_DONE),
    ),
    _Metric(
        "jain_index_streams", "Jain's index over streams", "1", "higher", INDEX,
        _mean_over_clients(_mean_jain, "no time with two streams in progress"),
    ),
    _Metric(
        "completion_spread_s", "First to last completion", "s", "lower", TIME,
        _mean_over_clients(completion_spread_s, "a stream did not complete"),
    ),
    _Metric(
        "stream_gap_max_s", "Longest service gap of any stream", "s", "lower", TIME,
        _mean_over_clients(_longest_gap_s),
    ),
)  # fmt: skip
