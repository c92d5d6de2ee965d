"""Contention in runs with known answers: failed streams, lost throughput, and the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from analysis_synthetic import known, make_level, make_streams
from hypothesis import given
from hypothesis import strategies as st

from analysis.arrays import Floats
from analysis.formats.study import Level
from analysis.measures.contention import measure_contention, open_s
from analysis.measures.data import ALL, Beats, ClassData

BEGIN_S, END_S = 100.0, 400.0
CAPACITY = 1e6
"""Throughput of a full bottleneck, in bytes per second."""


def level(**capacities: float) -> Level:
    return make_level(BEGIN_S, END_S, 460.0, capacities_bytes_per_s=capacities)


Stream = tuple[str, float, float, str]
"""Client, start and end in seconds, and outcome."""

NAMES = ("bulk1", "bulk2", "web1", "web2")


def class_data(rows: Sequence[Stream], got: Floats, client: str) -> ClassData:
    """Return a class with these streams. got: the bytes that ``client`` receives in each second."""
    streams = make_streams([(NAMES.index(row[0]), *row[1:]) for row in rows])
    ends: Floats = BEGIN_S + np.arange(1.0, got.size + 1.0)
    beats = Beats(np.full(got.size, NAMES.index(client)), ends - 1.0, ends, got)
    return ClassData(streams, beats, BEGIN_S, END_S, None, clients=NAMES)


WEB_GOT = np.random.default_rng(3).uniform(1e5, 5e5, 300)
BULK = [("bulk1", 0.0, 250.0, "success"), ("bulk1", 250.0, 450.0, "open")]
WEB = [("web1", 110.0, 115.0, "success"), ("web1", 200.0, 230.0, "success")]


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0, -0.3])
def test_full_links_make_one_class_lose_what_others_gain(share: float) -> None:
    bulk = class_data(BULK, CAPACITY - share * WEB_GOT, "bulk1")
    web = class_data(WEB, WEB_GOT, "web1")
    found = known(measure_contention({"bulk": bulk, "web": web, ALL: bulk}, level()).crowding_out)
    assert found.by == "bulk"
    assert found.share == pytest.approx(share)


def test_the_class_with_an_open_download_gets_the_remaining_capacity() -> None:
    busy = [("web1", 90.0, 410.0, "success")]
    bulk = class_data(WEB, CAPACITY - WEB_GOT, "bulk1")
    web = class_data(busy, WEB_GOT, "web1")
    found = known(measure_contention({"bulk": bulk, "web": web}, level()).crowding_out)
    assert found.by == "web"


SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=12)


@given(SPANS)
def test_time_with_a_stream_open_is_counted_once(spans: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in spans], dtype=np.float64)
    ends = starts + np.array([length for _, length in spans], dtype=np.float64)
    seconds = [
        any(start <= second and second + 1 <= end for start, end in zip(starts, ends, strict=True))
        for second in range(10, 30)
    ]
    assert open_s(starts, ends, 10.0, 30.0) == sum(seconds)


def test_fates_are_listed_by_client_and_start() -> None:
    rows = [
        ("bulk2", 120.0, 240.0, "timeout"),
        ("bulk1", 300.0, 350.0, "success"),
        ("bulk1", 130.0, 250.0, "timeout"),
        ("bulk1", 50.0, 90.0, "timeout"),  # It started before the span, so it does not count.
        ("bulk2", 350.0, 460.0, "open"),
        ("bulk2", 240.0, 350.0, "closed"),
    ]
    found = measure_contention({"bulk": class_data(rows, WEB_GOT, "bulk1")}, level())
    assert found.fates["bulk"] == {
        "bulk1": ("timeout", "success"),
        "bulk2": ("timeout", "closed", "open"),
    }
    assert found.failed("bulk", {"timeout"}) == {"bulk1": (0,), "bulk2": (0,)}
    assert found.failed("bulk", {"timeout", "closed"}) == {"bulk1": (0,), "bulk2": (0, 1)}
    assert found.failed("web", {"timeout"}) == {}


def test_the_position_that_carries_least_is_named() -> None:
    capacities = {"guard": 20.0, "exitguard": 30.0, "middle": 40.0, "exit": 5.0}
    found = known(measure_contention({}, level(**capacities)).bottleneck)
    assert (found.role, found.bytes_per_s) == ("exit", 35.0)
    assert measure_contention({}, level(guard=20.0, exit=10.0)).bottleneck is None
    assert measure_contention({}, level()).bottleneck is None
