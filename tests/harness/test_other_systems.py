"""Complete runs with parallel streams and cell traces, or with BitTorrent, on installed engines."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from analysis.celltrace.cells import Fate
from analysis.formats.files import RECORDS, TRACE_COUNTS
from analysis.formats.record_files import read_trace_counts
from onionlab.runs.plan import read_plan

from .checkout import DATA, Checkout
from .test_end_to_end import ENGINES


def experiment(checkout: Checkout, name: str, engine: str) -> dict[tuple[str, str, str], float]:
    """Run an experiment of the test data. Return its metrics: (variant, class, metric) -> value."""
    checkout.onionlab("experiment", str(DATA / f"{name}.yaml"), "--engine", engine)
    with (checkout.results(name) / "runs.csv").open(newline="") as lines:
        return {
            (row["variant"], row["class"], row["metric"]): float(row["value"])
            for row in csv.DictReader(lines)
            if row["value"]
        }


def records(checkout: Checkout, name: str) -> dict[str, Path]:
    """Return variant -> the folder with the records of this variant's run."""
    plan = read_plan(checkout.results(name) / "plan.json")
    return {run.variant: checkout.store.run(run.run_id) / RECORDS for run in plan.runs}


# This test comes first, so that it builds libtorrent while another test file builds Tor.
@pytest.mark.slow
@ENGINES
def test_requests_that_depend_only_on_the_rate_keep_a_transfer_in_slow_start(
    engine: str, checkout: Checkout
) -> None:
    value = experiment(checkout, "transfer", engine)
    # std::random_device takes numbers from the processor, not from the run's seed. Runs of a
    # program that uses it would not be repeatable.
    peers = list((checkout.root / "build/libtorrent/store").glob("*/bin/*"))
    assert [peer.name for peer in peers if b"random_device" in peer.read_bytes()] == []
    assert peers != []
    before = value["rate-only", "transfer", "slow_start_s"]
    since = value["slow-start", "transfer", "slow_start_s"]
    assert before > 1.5 * since
    assert since < 1.5
    assert ("rate-only", "transfer", "request_slow_start_s") not in value
    faster = value["slow-start", "transfer", "early_rate_bytes_per_s"]
    assert faster > value["rate-only", "transfer", "early_rate_bytes_per_s"]


@pytest.mark.slow
@pytest.mark.tor
@ENGINES
def test_streams_are_served_in_the_variants_order_and_cells_are_followed(
    engine: str, checkout: Checkout
) -> None:
    value = experiment(checkout, "streams", engine)
    # Under stream-list the last three streams are served first, and the others starve.
    assert value["stream-list", "streams", "last_three_lead"] > 0.5
    assert value["stream-list", "streams", "starvation"] > 0.5
    assert abs(value["stream-lrs", "streams", "last_three_lead"]) < 0.25
    assert value["stream-lrs", "streams", "jain_index_streams"] > 0.95
    for variant, folder in records(checkout, "streams").items():
        counts = read_trace_counts(folder / TRACE_COUNTS)
        assert sorted(relay.role for relay in counts.relays) == ["exit", "guard", "middle"]
        for relay in counts.relays:
            # About 15,000 cells passed each relay, and the trace lost none.
            assert relay.fates[Fate.RELAYED.name] + relay.fates[Fate.MADE_HERE.name] > 15_000
            assert relay.fates[Fate.BEGINNING_MISSING.name] == 0
            assert relay.malformed == relay.missing == relay.repeated == 0
        # Cells wait in the slow middle relay. The other relays have enough capacity.
        times = {role: value[variant, role, "cell_time_p50_s"] for role in ("guard", "middle")}
        assert times["middle"] > 10 * times["guard"]
