"""Generated networks are the same on any machine, and have the requested capacities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.errors import UserError
from onionlab.network.draws import ByteStream, draw, draw_bytes, draw_integer, draw_order
from onionlab.network.geography import (
    SourceRelay,
    known_capacities,
    known_geographies,
    load_geography,
    load_relays,
)
from onionlab.network.layout import RELAY_ROLES, Network, OwnLimit
from onionlab.network.sample import NetworkRequest, RelayGroup, capacity_shares, sample_network

REPOSITORY = Path(__file__).resolve().parents[2]
GEOGRAPHY = load_geography(REPOSITORY, "internet-2019")


def request_for(
    counts: dict[str, int] | None = None,
    *,
    clients: dict[str, int] | None = None,
    servers: int = 3,
    factor: float = 1.0,
    limited_by: str = "link",
    representative: bool = False,
) -> NetworkRequest:
    counts = counts or {"exitguard": 1, "guard": 2, "exit": 2, "middle": 5}
    groups = {}
    for role in RELAY_ROLES:
        relays = load_relays(REPOSITORY, role)
        count = counts.get(role, 0)
        total = factor * count * mean_carried(role, limited_by)
        groups[role] = RelayGroup(count, relays, total, limited_by, representative)
    return NetworkRequest(
        geography=GEOGRAPHY,
        authorities=3,
        relays=groups,
        servers=servers,
        server_bit_per_s=10**9,
        clients={"bulk": 2, "web": 4} if clients is None else clients,
        client_bit_per_s=None,
        perf_clients=1,
        packet_loss=0.0,
    )


def mean_carried(role: str, limited_by: str) -> float:
    return fmean(
        one.carries_bit_per_s if limited_by == "both" else one.link_bit_per_s
        for one in load_relays(REPOSITORY, role)
    )


def list_capacities(network: Network, role: str) -> list[int]:
    return [network.place_of(host).up_bit_per_s for host in network.by_role(role)]


def test_a_draw_is_the_same_on_every_machine() -> None:
    # These are the first eight bytes of SHAKE-256 of "7\x1fx\x1fy", computed by openssl.
    assert draw_bytes(8, 7, "x", "y").hex() == "33628bd5e56cb9dd"
    assert draw(7, "x", "y") == int("33628bd5e56cb9dd", 16) // 2**11 / 2**53


@given(st.integers(0, 2**32), st.text(max_size=20))
def test_draws_lie_in_their_range(seed: int, label: str) -> None:
    assert 0 <= draw(seed, label) < 1
    assert 3 <= draw_integer(3, 5, seed, label) <= 5


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=8))
def test_a_byte_stream_does_not_depend_on_how_it_is_read(pieces: list[int]) -> None:
    stream, whole = ByteStream(1, "s"), ByteStream(1, "s")
    assert b"".join(stream.read(n) for n in pieces) == whole.read(sum(pieces))


@given(st.sets(st.text(min_size=1), min_size=2, max_size=12), st.integers(0, 99))
def test_the_order_of_some_is_that_of_all(names: set[str], seed: int) -> None:
    some = sorted(names)[1:]
    order = draw_order(sorted(names), seed, "o")
    assert [name for name in order if name in some] == draw_order(some, seed, "o")


def test_hosts_have_names_roles_and_addresses_of_their_own() -> None:
    network = sample_network(request_for(), 1)
    authorities = [host.name for host in network.by_role("authority")]
    assert authorities == ["authority1", "authority2", "authority3"]
    assert [h.name for h in network.relays][:2] == ["relay1exitguard", "relay2guard"]
    assert {h.traffic_class for h in network.by_role("client")} == {"bulk", "web", "perf"}
    assert len({h.address for h in network.hosts}) == len(network.hosts)
    assert len({h.name for h in network.hosts}) == len(network.hosts)


def test_capacities_keep_the_shape_of_their_distribution() -> None:
    capacities = [one.link_bit_per_s for one in load_relays(REPOSITORY, "middle")]
    request = request_for({"exitguard": 1, "guard": 1, "exit": 1, "middle": 66})
    drawn = list_capacities(sample_network(request, 5), "middle")
    # The distribution lists 66 relays and is cut into 66 slices. One relay is drawn from each
    # slice, so each drawn relay is close to the listed relay of the same rank.
    for ours, source in zip(drawn[20:60], capacities[20:60], strict=True):
        assert 0.5 < ours / source < 2


@pytest.mark.parametrize("limited_by", ["link", "bandwidth-rate", "both"])
def test_representative_networks_have_the_same_capacities(limited_by: str) -> None:
    request = request_for(limited_by=limited_by, representative=True)
    one, other = sample_network(request, 1), sample_network(request, 2)
    for role in RELAY_ROLES:
        assert list_capacities(one, role) == list_capacities(other, role)
        limits = [[host.own_limit for host in network.by_role(role)] for network in (one, other)]
        assert limits[0] == limits[1]
    assert one.latency_us != other.latency_us
    assert [host.place for host in one.hosts] != [host.place for host in other.hosts]
    drawn = [sample_network(request_for(limited_by=limited_by), seed) for seed in (1, 2)]
    assert list_capacities(drawn[0], "middle") != list_capacities(drawn[1], "middle")
    totals = {sum(list_capacities(network, "guard")) for network in (one, other, *drawn)}
    if limited_by == "link":
        assert max(totals) - min(totals) < 10_000


def network_of(limited_by: str, total_bit_per_s: float, *relays: SourceRelay) -> Network:
    """Return a network whose middle relays are drawn from as many relays."""
    request = request_for()
    group = RelayGroup(len(relays), relays, total_bit_per_s, limited_by)
    request = replace(request, relays={**request.relays, "middle": group})
    return sample_network(request, 1)


@pytest.mark.parametrize(
    ("burst_bit", "burst_bytes"),
    [(640_000, 100_000), (None, 100_000), (1_600_000, 200_000), (2**40, 2**31 - 1)],
)
def test_a_burst_is_at_least_the_rate_and_at_most_what_tor_takes(
    burst_bit: int | None, burst_bytes: int
) -> None:
    network = network_of("both", 800_000, SourceRelay(1_600_000, 800_000, burst_bit))
    (middle,) = network.by_role("middle")
    assert middle.own_limit == OwnLimit(100_000, burst_bytes)


@pytest.mark.parametrize("limited_by", ["bandwidth-rate", "both"])
def test_a_rate_that_tor_refuses_is_refused(limited_by: str) -> None:
    limit = 2**31 - 1
    network = network_of(limited_by, 8 * limit, SourceRelay(80 * limit, 8 * limit))
    (middle,) = network.by_role("middle")
    assert middle.own_limit is not None
    own = middle.own_limit
    assert limit - 1000 < own.rate_bytes_per_s <= own.burst_bytes <= limit
    rate = limit + 1000
    with pytest.raises(UserError, match=r"^middle relays: the fastest .* 2,147,483,647"):
        network_of(limited_by, 8 * rate, SourceRelay(80 * rate, 8 * rate))


def test_networks_of_one_seed_share_the_hosts_they_have_in_common() -> None:
    few = sample_network(request_for(clients={"web": 4}), 3)
    many = sample_network(request_for(clients={"bulk": 5, "web": 9}), 3)
    placed = {h.name: few.place_of(h).region for h in few.hosts}
    assert {h.name: many.place_of(h).region for h in many.hosts if h.name in placed} == placed
    shared = few.latency_us.keys() & many.latency_us.keys()
    assert len(shared) > 20
    assert all(few.latency_us[pair] == many.latency_us[pair] for pair in shared)


def test_every_two_places_have_a_latency_near_their_regions() -> None:
    network = sample_network(request_for(), 1)
    names = [place.name for place in network.places]
    region = {place.name: place.region for place in network.places}
    assert set(network.latency_us) == {(a, b) for i, a in enumerate(names) for b in names[i:]}
    for (a, b), latency_us in network.latency_us.items():
        rtt_ms = GEOGRAPHY.rtt_ms_between(region[a], region[b])
        assert 0.47 * rtt_ms <= 2 * latency_us / 1000 <= 2.14 * rtt_ms


def test_too_many_clients_for_the_addresses_are_refused() -> None:
    with pytest.raises(UserError, match="not enough addresses"):
        sample_network(request_for(clients={"web": 64_001}), 1)


GEOGRAPHIES = """\
geographies:
  lab:
    regions: [a, b]
    rtt_ms:
      a: {a: 1, b: 20}
      b: {b: 1.5}
    rtt_deviation: {0.0: 1.0, 1.0: 1.5}
    client_bandwidth_mbit_per_s:
      a: {down: 10, up: 1}
      b: {down: 20, up: 2}
    places:
      client: {a: 1, b: 3}
"""


def test_a_geography_is_read(tmp_path: Path) -> None:
    assert known_geographies(tmp_path) is None
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "regions.yaml").write_text(GEOGRAPHIES)
    assert known_geographies(tmp_path) == frozenset({"lab"})
    lab = load_geography(tmp_path, "lab")
    assert lab.rtt_ms_between("a", "b") == lab.rtt_ms_between("b", "a") == 20.0
    assert lab.rtt_ms_between("b", "b") == 1.5
    assert lab.client_bit_per_s("b") == (2_000_000, 20_000_000)
    assert lab.places == {"client": {"a": 1, "b": 3}}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lab:", "lap:", 'unknown name "lab"; did you mean "lap"?'),
        ("rtt_ms", "rtt", '4: geographies.lab.rtt: unknown key; did you mean "rtt_ms"?'),
        (", b: 20", "", "4: geographies.lab.rtt_ms: missing: a - b"),
        ("b: 20", "c: 20", '4: geographies.lab.rtt_ms: unknown region "c"'),
        ("1.0: 1.5", "2.0: 1.5", "7: geographies.lab.rtt_deviation.2.0: expected 1.0 or less"),
        ("b: {down", "d: {down", "client_bandwidth_mbit_per_s: missing: b"),
        ("{b: 1.5}", "{b: 1.5, a: 2}", "5: geographies.lab.rtt_ms.a.b: a - b and b - a differ"),
        (", 1.0: 1.5", "", "7: geographies.lab.rtt_deviation: the quantiles 0.0 and 1.0 are"),
        ("client: {a", "clients: {a", 'clients: unknown kind of host; did you mean "client"'),
        ("{a: 1, b: 3}", "{a: 0}", "12: geographies.lab.places.client: no region has a weight"),
        ("[a, b]", '["São", b]', "3: geographies.lab.regions[1]: expected text that matches"),
    ],
)
def test_a_broken_geography_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in GEOGRAPHIES
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "regions.yaml").write_text(GEOGRAPHIES.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        load_geography(tmp_path, "lab")
    assert message in caught.value.message
    assert "configs/regions.yaml" in caught.value.message


def test_a_kind_of_host_without_places_is_named() -> None:
    places = {kind: weights for kind, weights in GEOGRAPHY.places.items() if kind != "middle"}
    geography = GEOGRAPHY.model_copy(update={"places": places})
    request = replace(request_for(), geography=geography)
    with pytest.raises(UserError, match="the geography has no place for hosts of kind middle"):
        sample_network(request, 1)


@pytest.mark.parametrize("limited_by", ["link", "bandwidth-rate", "both"])
@pytest.mark.parametrize("count", [1, 5, 20])
@given(seed=st.integers(0, 2**32))
def test_the_capacity_of_a_role_does_not_depend_on_seed_or_limit(
    limited_by: str, count: int, seed: int
) -> None:
    counts = {"exitguard": 1, "guard": 1, "exit": 1, "middle": count}
    network = sample_network(request_for(counts, factor=2.0, limited_by=limited_by), seed)
    carried = sum(network.carries_bit_per_s(host) for host in network.by_role("middle"))
    # Rates of links are whole kbit/s, and relays' own limits are at least 75 KiB/s, so the sum may
    # differ slightly from the requested one.
    assert carried == pytest.approx(
        2.0 * count * mean_carried("middle", limited_by), rel=0.01, abs=count * 75 * 8192
    )


@pytest.mark.parametrize("limited_by", ["link", "bandwidth-rate", "both"])
def test_relays_that_would_be_slower_than_a_relay_can_be_are_refused(limited_by: str) -> None:
    """Making such relays faster instead would make the network less congested than stated."""
    with pytest.raises(UserError, match=r"^exitguard relays are to carry .* in total, and 1 of "):
        sample_network(request_for(factor=0.001, limited_by=limited_by), 1)


def test_a_relay_that_limits_itself_has_a_link_that_does_not() -> None:
    counts = {"guard": 1, "exit": 1, "middle": 9}
    linked = sample_network(request_for(counts), 3)
    own = sample_network(request_for(counts, limited_by="bandwidth-rate"), 3)
    for one, other in zip(linked.by_role("middle"), own.by_role("middle"), strict=True):
        rate = max(75 * 1024, linked.place_of(one).up_bit_per_s // 8)
        assert (one.own_limit, other.own_limit) == (None, OwnLimit(rate, rate))
        assert own.place_of(other).up_bit_per_s == 80 * rate
        assert own.carries_bit_per_s(other) == 8 * rate


def test_the_lower_of_two_limits_counts() -> None:
    relays = (
        SourceRelay(800_000, 640_000, 1_280_000),
        SourceRelay(1_600_000, 8_000_000, 8_000_000),
    )
    network = network_of("both", 2 * 2_240_000, *relays)
    slow, fast = network.by_role("middle")
    assert network.place_of(slow).up_bit_per_s == 1_600_000
    assert slow.own_limit == OwnLimit(160_000, 320_000)
    assert network.place_of(fast).up_bit_per_s == 3_200_000
    assert fast.own_limit is None


def test_how_the_capacity_of_a_role_is_divided() -> None:
    relays = (SourceRelay(800_000, 640_000, 1_280_000), SourceRelay(1_600_000))
    request = request_for({"guard": 1, "exit": 2, "middle": 2})
    both = RelayGroup(2, relays, 2_240_000, "both")
    rate = request.relays["exit"].total_bit_per_s
    groups = {
        **request.relays,
        "middle": both,
        # The limit equals the mean link rate of the two exits, so it limits only the faster exit.
        "exit": replace(request.relays["exit"], rate_bit_per_s=int(rate / 2)),
    }
    shares = capacity_shares(replace(request, relays=groups), 1)
    assert shares["guard"] == (0.0, 1.0)
    assert shares["middle"] == pytest.approx((640 / 2240, 1600 / 2240))
    assert 0.5 < shares["exit"][0] == shares["exit"][1] < 1


def write_capacities(root: Path, relays: str) -> None:
    (root / "configs").mkdir(exist_ok=True)
    (root / "configs" / "relay-capacity.yaml").write_text(f"distributions:\n  middle: {relays}\n")


def test_capacities_are_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"configs/relay-capacity\.yaml: cannot be read"):
        load_relays(tmp_path, "middle")
    assert known_capacities(tmp_path) is None
    write_capacities(tmp_path, "[[3, 2, 4], 1]")
    k = 8192
    assert load_relays(tmp_path, "middle") == (SourceRelay(k), SourceRelay(3 * k, 2 * k, 4 * k))
    assert known_capacities(tmp_path) == frozenset({"middle"})
    with pytest.raises(UserError, match='unknown name "middel"; did you mean "middle"') as caught:
        load_relays(tmp_path, "middel")
    assert caught.value.hint == "choose one of: middle"


@pytest.mark.parametrize("wrong", ["-1", "[3, 2]", "[3, 4, 2]", "[3, 0, 2]", "[]", "[1, 2, 3, 4]"])
def test_a_broken_capacity_is_named_with_its_line(tmp_path: Path, wrong: str) -> None:
    write_capacities(tmp_path, f"[3, {wrong}]")
    with pytest.raises(UserError, match=r"yaml:2: distributions\.middle\[2\]: .*BandwidthBurst"):
        load_relays(tmp_path, "middle")
    assert known_capacities(tmp_path) is None
