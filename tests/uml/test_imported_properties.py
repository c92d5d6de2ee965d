"""Properties of imported networks, measured on both engines by the same programs.

In imported networks, paths can have their own loss, hosts can have their own link and any IPv4
address, and two hosts can be at one place. The bootstrap has neither limits nor losses. Programs
may end before the simulation does.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from onionlab.engines.base import Engine, EngineFailureError
from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.errors import UserError
from onionlab.network.layout import Link
from uml.guest_support import MBIT, Net, run_guest

pytestmark = [pytest.mark.uml, pytest.mark.slow]

BOOTSTRAP_END_S = 40
# After a loss, Shadow's TCP needs three seconds or more to send again. To get enough pings, many
# connections ping at the same time.
PINGERS, PINGS_BEFORE, PINGS_AFTER, PING_INTERVAL_S = 40, 50, 200, 0.5
STOP_S = 180
TRANSFER_BYTES, TRANSFERS = 1_000_000, 4
OWN_LINK = Link(2 * MBIT, 4 * MBIT)
PAYLOAD_SHARE = 1448 / 1500
# Host -> one-way latency in us and packet loss of its path to the host `near`.
PATHS = {"neighbour": (7_000, 0.1), "far": (20_000, 0.05), "clean": (10_000, 0.0)}


@pytest.fixture(scope="module", params=["uml", "shadow"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Return each engine in turn. Skip a test if its engine is missing."""
    if request.param == "uml":
        found: Engine = request.getfixturevalue("uml_engine")
        return found
    try:
        return ShadowEngine()
    except UserError as error:
        pytest.skip(f"needs Shadow and TGen: {error.message}")


def network() -> Net:
    net = Net(bootstrap_end_ms=1000 * BOOTSTRAP_END_S, packet_loss=0.01)
    net.host("near", address="77.225.99.40")
    net.host("neighbour", place="place-near", address="9.9.9.9")
    net.host("far", address="151.184.142.83")
    net.host("clean", address="223.1.2.3")
    net.host("own", place="place-clean", link=OWN_LINK)
    net.latency_us[frozenset(("place-near",))] = PATHS["neighbour"][0]
    net.path_loss[frozenset(("place-near",))] = PATHS["neighbour"][1]
    for name in ("far", "clean"):
        net.latency("near", name, PATHS[name][0])
        net.path_loss[frozenset(("place-near", f"place-{name}"))] = PATHS[name][1]
    net.path_loss[frozenset(("place-clean",))] = 0.0
    for name in ("neighbour", "far", "clean", "own"):
        net.run(name, "serve")
    # Shadow numbers processes in the order of their starts, so they are added here in that order.
    for start_s, count in ((2, PINGS_BEFORE), (BOOTSTRAP_END_S + 1, PINGS_AFTER)):
        for name in PATHS:
            arguments = ("ping", name, str(count), str(PING_INTERVAL_S), str(PINGERS))
            net.run("near", *arguments, at_ms=1000 * start_s)
        # The two transfers must not overlap, because the acknowledgements of one transfer would
        # wait behind the data of the other.
        for sender, receiver, after_s in (("own", "clean", 0), ("clean", "own", 30)):
            sizes = str(TRANSFER_BYTES), str(TRANSFERS)
            net.run(sender, "transfer", receiver, *sizes, at_ms=1000 * (start_s + after_s))
    net.run("far", "fail", "0", "3", runs_to_end=False)
    return net


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory, engine: Engine) -> Path:
    directory = tmp_path_factory.mktemp(engine.name)
    run_guest(directory, engine, network(), stop_s=STOP_S)
    return directory


def printed_lines(run_directory: Path, host: str, position: int) -> list[dict[str, float]]:
    """Return the output of a program of a host. position: its index in the order of starts."""
    logs = (run_directory / "shadow.data/hosts" / host).glob("python*.stdout")
    log = sorted(logs, key=lambda path: int(path.name.split(".")[-2]))[position]
    return [json.loads(line) for line in log.read_text().splitlines()]


def pings(run_directory: Path, name: str, *, bootstrap: bool) -> tuple[list[float], float]:
    """Return the round-trip times in seconds, and the share of them that a lost packet delayed.

    bootstrap: whether to return the pings of the bootstrap instead of the later ones.
    """
    position = list(PATHS).index(name) + (0 if bootstrap else len(PATHS))
    trips_s = [line["ping_s"] for line in printed_lines(run_directory, "near", position)]
    round_trip_s = 2 * PATHS[name][0] / 1e6
    late = sum(trip_s > 1.5 * round_trip_s for trip_s in trips_s)
    return trips_s, late / len(trips_s)


@pytest.mark.parametrize("name", PATHS)
def test_each_path_has_its_loss_after_the_bootstrap(run_directory: Path, name: str) -> None:
    latency_us, loss = PATHS[name]
    before_s, late_before = pings(run_directory, name, bootstrap=True)
    after_s, late_after = pings(run_directory, name, bootstrap=False)
    assert (len(before_s), late_before) == (PINGERS * PINGS_BEFORE, 0.0)
    assert statistics.median(after_s) == pytest.approx(2 * latency_us / 1e6, rel=0.02)
    assert statistics.median(before_s) == pytest.approx(2 * latency_us / 1e6, rel=0.02)
    # A ping is delayed if one of its two packets is lost. The tolerance is four standard
    # deviations.
    expected = 1 - (1 - loss) ** 2
    tolerance = 4 * (expected * (1 - expected) / len(after_s)) ** 0.5
    assert len(after_s) > 1000
    assert late_after == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(
    ("sender", "first", "bit_per_s"),
    [("own", 1, OWN_LINK.up_bit_per_s), ("clean", 1, OWN_LINK.down_bit_per_s)],
)
def test_a_link_limits_a_host_after_the_bootstrap(
    run_directory: Path, sender: str, first: int, bit_per_s: int
) -> None:
    before_s, after_s = (
        [line["transfer_s"] for line in printed_lines(run_directory, sender, position)]
        for position in (first, first + 1)
    )
    assert len(before_s) == len(after_s) == TRANSFERS
    of_link_s = TRANSFER_BYTES * 8 / bit_per_s / PAYLOAD_SHARE
    # Without the limit, a transfer takes much less time than the link would need, and most of that
    # time is slow start.
    assert max(before_s) < 0.5 < of_link_s
    assert statistics.median(after_s) == pytest.approx(of_link_s, rel=0.05)


@pytest.mark.parametrize("bootstrap_end_ms", [0, 2000], ids=["at-once", "after-the-bootstrap"])
def test_a_rate_may_exceed_32_bits(tmp_path: Path, engine: Engine, bootstrap_end_ms: int) -> None:
    # tornettools gives servers 100 Gbit/s. The lower 32 bits of the rate below are 1 Mbit/s, with
    # which the transfer would take eight seconds.
    fast = Link(2**32 * 8 + MBIT, 2**32 * 8 + MBIT)
    net = Net(bootstrap_end_ms=bootstrap_end_ms)
    net.host("a", link=fast)
    net.host("b", link=fast)
    net.run("b", "serve")
    net.run("a", "transfer", "b", str(TRANSFER_BYTES), "1", at_ms=3000)
    run_guest(tmp_path, engine, net, stop_s=20)
    (of_transfer,) = printed_lines(tmp_path, "a", 0)
    assert of_transfer["transfer_s"] < 0.5


@pytest.mark.parametrize(
    ("arguments", "runs_to_end", "said_of_it"),
    [(("fail", "3", "1"), False, "3"), (("serve",), False, "run"), (("fail", "0", "1"), True, "0")],
    ids=["fails", "never-ends", "ends-early"],
)
def test_a_program_that_ends_differently_is_an_error(
    tmp_path: Path, engine: Engine, arguments: tuple[str, ...], runs_to_end: bool, said_of_it: str
) -> None:
    net = Net()
    net.host("a")
    net.run("a", *arguments, runs_to_end=runs_to_end)
    with pytest.raises(EngineFailureError) as failed:
        run_guest(tmp_path, engine, net, stop_s=5)
    assert said_of_it in "\n".join([failed.value.message, *failed.value.log_tail])


def test_a_bootstrap_may_be_longer_than_the_simulation(tmp_path: Path, engine: Engine) -> None:
    net = Net(bootstrap_end_ms=20_000, packet_loss=1.0)
    net.host("a")
    net.host("b")
    net.run("b", "serve")
    net.run("a", "ping", "b", "1000", "1", at_ms=2000)
    run_guest(tmp_path, engine, net, stop_s=10)
    assert len(printed_lines(tmp_path, "a", 0)) == 8
