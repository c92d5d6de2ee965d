"""Metrics of relayed cells: values that can be told by hand, and no value where there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.arrays import Floats
from analysis.celltrace.statistics import Relayed, Stage, by_circuit, chance_longer
from analysis.measures.catalogue import run_statistics
from analysis.measures.data import Beats, ClassData, Streams
from analysis.measures.families.cells import METRICS
from analysis.measures.metric import Statistic

QUIET, BUSY = 4, 40
SPAN_S = 400.0


def cells(
    quiet_ms: float, busy_ms: float, flush_share: float = 0.5, time_s: Floats | None = None
) -> Relayed:
    """Two quiet circuits of a few cells and two busy ones of many."""
    sizes = [QUIET, QUIET, BUSY, BUSY]
    circuit = np.repeat(np.arange(4), sizes)
    total = np.where(circuit < 2, quiet_ms, busy_ms)
    nothing = np.zeros_like(total)
    stages = {
        Stage.INBUF_QUEUE: nothing,
        Stage.QUEUE_OUTBUF: total * (1 - flush_share),
        Stage.OUTBUF_FLUSH: total * flush_share,
        Stage.TOTAL: total,
    }
    if time_s is None:
        time_s = np.linspace(0.0, SPAN_S - 1, total.size)
    return Relayed(time_s, stages, by_circuit([circuit]), SPAN_S)


def statistics(of: Relayed) -> dict[str, Statistic]:
    nothing, codes = np.empty(0), np.empty(0, np.int64)
    streams = Streams(codes, nothing, nothing, np.empty(0, np.str_), *([nothing] * 4))
    beats = Beats(codes, nothing, nothing, nothing)
    data = ClassData(streams, beats, 0.0, SPAN_S, None, relayed=of)
    return {name: statistic for (_, name), statistic in run_statistics({"guard": data}).items()}


def test_a_class_of_relays_has_the_metrics_of_cells_and_no_other() -> None:
    assert set(statistics(cells(2.0, 1.0))) == {metric.name for metric in METRICS}


def test_values_that_can_be_told_by_hand() -> None:
    found = statistics(cells(quiet_ms=20.0, busy_ms=4.0, flush_share=0.25))
    assert found["cell_time_p50_s"].value == pytest.approx(0.004)
    assert found["cell_time_p99_s"].value == pytest.approx(0.020)
    assert found["cell_quiet_longer"].value == 1.0
    assert found["cell_flush_share"].value == pytest.approx(0.25)
    assert statistics(cells(4.0, 20.0))["cell_quiet_longer"].value == 0.0
    assert statistics(cells(4.0, 4.0))["cell_quiet_longer"].value == 0.5


def test_no_value_has_its_reason() -> None:
    none = by_circuit([np.empty(0, np.int64)])
    empty = Relayed(np.empty(0), dict.fromkeys(Stage, np.empty(0)), none, SPAN_S)
    for statistic in statistics(empty).values():
        assert statistic.value is None
        assert statistic.reason in (
            "no cell was relayed in the measured span",
            "no cell went towards a client in the measured span",
        )
    found = statistics(cells(0.0, 0.0))
    assert found["cell_flush_share"].reason == "no cell spent any time inside a relay"
    one_circuit = replace(cells(1.0, 1.0), circuits=by_circuit([np.zeros(88, np.int64)]))
    found = statistics(one_circuit)
    assert found["cell_quiet_longer"].reason == "no circuit has more cells than the quiet ones"
    found = statistics(cells(1.0, 2.0, time_s=np.linspace(0.0, 100.0, 88)))
    assert found["cell_spike_45s"].reason.startswith("cells arrived for less than 360 s")


@pytest.mark.parametrize(("period_s", "stands_out"), [(45, True), (48, True), (23, False)])
def test_a_spike_about_every_45_seconds_stands_out_of_noise(
    period_s: int, stands_out: bool
) -> None:
    seconds = np.arange(int(SPAN_S), dtype=np.float64)
    noise = np.random.default_rng(1).lognormal(0.0, 0.3, seconds.size)
    # Twice 23 s lies between 40 s and 50 s, and is no period of its own.
    times = np.where(seconds % period_s < 2, 50.0, 1.0) * noise
    stages = dict.fromkeys(Stage, times)
    circuits = by_circuit([np.zeros(seconds.size, np.int64)])
    value = statistics(Relayed(seconds, stages, circuits, SPAN_S))["cell_spike_45s"].value
    assert value is not None
    assert (value > 1) == stands_out


numbers = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@given(numbers, numbers)
def test_chance_longer_is_the_share_of_pairs(one: list[int], other: list[int]) -> None:
    pairs = [(a > b) + (a == b) / 2 for a in one for b in other]
    found = chance_longer(np.array(one, np.float64), np.array(other, np.float64))
    assert found == pytest.approx(sum(pairs) / len(pairs))
