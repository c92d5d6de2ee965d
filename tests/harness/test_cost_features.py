"""What a run's cost follows from: the load that its settings tell, against sums made by hand."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.experiment import Settings, load
from onionlab.network.geography import load_geography
from onionlab.runs.costs import features
from onionlab.runs.costs.features import (
    FEATURES,
    capacity_bytes_per_s,
    carried_bytes,
    circuit_rtt_s,
    features_of,
    flowing_share,
)
from onionlab.runs.costs.fitting import HELD_OUT, TRAINING, Measured, read_measured

REPOSITORY = Path(__file__).resolve().parents[2]
LINKS = "configs/costs/links.yaml"
KIB = 1024


def settings_of(name: str, level: str | None = None, scale: float | None = None) -> Settings:
    experiment = load(name, root=REPOSITORY).with_overrides(scale=scale)
    found = experiment.levels[level or next(iter(experiment.levels))].settings
    assert isinstance(found, Settings)
    return found


def test_the_narrowest_position_is_what_a_network_carries() -> None:
    # base/starvation.yaml: 630, 200 and 720 KiB/s; of 514 bytes on a link and 5 % of headers 498
    # are payload (tor-spec, section 3).
    carried = capacity_bytes_per_s(REPOSITORY, settings_of("starvation", "r200-s5"))
    assert carried == pytest.approx(200 * KIB * 498 / (514 * 1.05))
    fast = capacity_bytes_per_s(REPOSITORY, settings_of("starvation", "r700-s2"))
    assert fast == pytest.approx(630 * KIB * 498 / (514 * 1.05))


def test_five_middles_carry_what_was_measured() -> None:
    # Full size, under load: 6.25 MB/s through the middles on the wire
    # (docs/explanation/calibration.md has the capacities).
    carried = capacity_bytes_per_s(REPOSITORY, settings_of("swrr-5mid"))
    assert 0.6 * 6.25e6 < carried < 1.6 * 6.25e6
    tenth = capacity_bytes_per_s(REPOSITORY, settings_of("swrr-5mid", scale=0.1))
    assert tenth == pytest.approx(carried / 10)


def test_a_download_that_is_made_once_is_carried_once() -> None:
    found = features_of(REPOSITORY, settings_of("starvation", "r200-s5"))
    assert found.carried_bytes == 5 * 4_980_000
    assert found.streams == 5
    assert found.verbose_bytes == found.carried_bytes  # its log level is info
    assert found.tors == 5
    assert found.tor_s == 5 * 360


def test_a_short_drain_cuts_what_is_carried() -> None:
    settings = settings_of("starvation", "r200-s5")
    time = settings.time.model_copy(update={"measured_s": 10.0, "drain_s": 0.0})
    short = settings.model_copy(update={"time": time})
    limit = 10 * capacity_bytes_per_s(REPOSITORY, settings)
    assert sum(carried_bytes(REPOSITORY, short).values()) == pytest.approx(limit, rel=1e-6)


def test_a_lone_client_gets_what_its_window_lets_through() -> None:
    settings = settings_of("quick")
    alone = {
        "web": settings.traffic["web"].model_copy(update={"count": 1}),
        "bulk": settings.traffic["bulk"].model_copy(update={"count": 0}),
    }
    rtt_s = circuit_rtt_s(load_geography(REPOSITORY, "internet-2019"))
    # 500 cells of 498 bytes a round trip; two of them until the first byte; pauses of 1 to 20 s.
    each_s = 2 * rtt_s + 320 * KIB / (500 * 498 / rtt_s) + 10.5
    loaded_s = 255 - 90 - 5 - 7.5
    found = carried_bytes(REPOSITORY, settings.model_copy(update={"traffic": alone}))
    assert found == {"bulk": 0.0, "web": pytest.approx(320 * KIB * loaded_s / each_s)}


def test_the_round_trip_of_a_circuit_is_that_of_its_four_links() -> None:
    geography = load_geography(REPOSITORY, "one-place")
    ((_, rtt_ms),) = geography.rtt_ms.items()
    assert circuit_rtt_s(geography) == pytest.approx(4 * rtt_ms / 1000)


@given(scale=st.floats(0.03, 1.0))
def test_more_hosts_carry_no_less(scale: float) -> None:
    small = features_of(REPOSITORY, settings_of("swrr-5mid", scale=scale))
    large = features_of(REPOSITORY, settings_of("swrr-5mid", scale=min(1.0, scale * 1.5)))
    # Counts are rounded to whole hosts, and capacities are not.
    assert large.tors >= small.tors
    assert large.carried_bytes >= 0.95 * small.carried_bytes
    assert all(math.isfinite(value) and value >= 0 for value in asdict(small).values())


def test_streams_share_what_there_is_alike() -> None:
    slow = features._Asking(10, 1000, 0.0, 100.0, 60.0, math.inf)
    fast = features._Asking(1, 1000, 0.0, 1000.0, 60.0, math.inf)
    # 11 streams and 55 bytes a second: 5 each, for all of them want more.
    assert features._fair_bytes_per_s([slow, fast], 55.0) == pytest.approx(5.0)
    # 2,500: the ten take their 100 each, which leaves the other its 1,000.
    assert features._fair_bytes_per_s([slow, fast], 2500.0) == 1000.0


def test_a_trace_counts_each_relay_that_writes_it() -> None:
    traced = features_of(REPOSITORY, settings_of("celltrace-overhead", "traced"))
    untraced = features_of(REPOSITORY, settings_of("celltrace-overhead", "untraced"))
    assert untraced.traced_bytes == 0
    assert traced.traced_bytes == 3 * traced.carried_bytes == 3 * untraced.carried_bytes


def test_one_middle_is_not_alone_where_a_stream_takes_two_circuits() -> None:
    vegas = capacity_bytes_per_s(REPOSITORY, settings_of("swrr-5mid-vegas", scale=0.05))
    fixed = capacity_bytes_per_s(REPOSITORY, settings_of("swrr-5mid", scale=0.05))
    assert vegas > 2 * fixed
    # With two middles both circuits find one.
    assert capacity_bytes_per_s(
        REPOSITORY, settings_of("swrr-5mid-vegas", scale=0.3)
    ) == capacity_bytes_per_s(REPOSITORY, settings_of("swrr-5mid", scale=0.3))


def test_two_peers_fill_the_narrower_link() -> None:
    experiment = load("slowstart", root=REPOSITORY)
    found = features_of(REPOSITORY, experiment.levels["20mbit"].settings)
    assert found.peer_bytes == 20e6 / 8 * 12
    assert found.tors == found.carried_bytes == 0
    assert found.log_lines == 12 / 0.005


def test_peers_make_all_content_and_wake_for_packets_at_most_once_a_tick() -> None:
    levels = load("slowstart", root=REPOSITORY).levels
    slow, fast = (features_of(REPOSITORY, levels[name].settings) for name in ("200kb", "50mbit"))
    assert slow.hashed_bytes == fast.hashed_bytes == 2 * 256 * KIB**2
    assert slow.peer_wakes == pytest.approx(200_000 * 12 / 1400)
    assert fast.peer_wakes == 12_000  # and 53,571 packets of 1400 bytes


def test_small_congested_networks_stall_and_large_or_short_ones_hardly() -> None:
    def share(name: str, level: str | None = None, scale: float | None = None) -> float:
        return flowing_share(REPOSITORY, settings_of(name, level, scale))

    # One middle with a link of 190 kB/s, 450 s of load: 1 - exp(-190,000 / (1325 * 450)).
    assert share(LINKS, "5mid", scale=0.02) == pytest.approx(0.27, abs=0.01)
    assert share(LINKS, "5mid", scale=0.02) < share(LINKS, "5mid", scale=0.1) < 0.85
    assert share(LINKS, "5mid") > 0.999
    # The same link as at a scale of 0.08, for 165 s.
    assert share("quick") == pytest.approx(1 - math.exp(-761_000 / (1325 * 165)), abs=0.005)


def test_where_tor_limits_itself_no_link_drops_anything() -> None:
    rate = settings_of(LINKS, "rate-kist", scale=0.02)
    assert flowing_share(REPOSITORY, rate) == 1
    assert features_of(REPOSITORY, rate).stalling_bytes == 0
    assert flowing_share(REPOSITORY, settings_of("starvation", "r200-s5")) == 1
    # r20: below what Tor takes as a BandwidthRate, so that the link is the limit.
    assert flowing_share(REPOSITORY, settings_of("starvation", "r20-s5")) < 0.01
    assert flowing_share(REPOSITORY, settings_of(LINKS, "both-kist", scale=0.02)) < 0.3


MEASURED = [
    run for file in (TRAINING, HELD_OUT) for run in read_measured(REPOSITORY / file) if run.took
]


@pytest.mark.parametrize(
    "run", MEASURED, ids=[f"{r.engine}-{Path(r.experiment).stem}-{r.level}" for r in MEASURED]
)
def test_the_measured_runs_are_told_as_today(run: Measured) -> None:
    """Whoever changes an experiment or what follows from it has to fit again, from these files."""

    scale = None if run.scale == 1 else run.scale
    name = run.experiment
    path = str(REPOSITORY / name) if name.endswith(".yaml") else name
    experiment = load(path, root=REPOSITORY).with_overrides(scale=scale)
    found = features_of(REPOSITORY, experiment.levels[run.level].settings)
    for feature in FEATURES:
        assert getattr(run.features, feature) == pytest.approx(getattr(found, feature), rel=1e-4)
