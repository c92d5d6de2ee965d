"""Draw a network for one seed: capacities, places and distances."""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from onionlab.errors import UserError
from onionlab.network.draws import draw, draw_integer
from onionlab.network.geography import REGIONS_FILE, Geography, SourceRelay
from onionlab.network.layout import RELAY_ROLES, Host, Network, OwnLimit, Place

AUTHORITY_BIT_PER_S = 50_000_000
PERF_CLASS = "perf"
MAX_NAME = 19
"""Maximum length of a host's name, which is its Nickname: MAX_NICKNAME_LEN in src/core/or/or.h."""

# Clients and servers share a few attachment points per region. Separate points for 400 clients
# would add 80,000 edges to the graph of paths. Almost all these edges would be unused.
ATTACHMENTS_PER_REGION = 4

# Capacities are whole kilobits per second, which every engine's units represent exactly.
CAPACITY_STEP_BIT_PER_S = 1000
MIN_RELAY_BIT_PER_S = 100_000

# The ratio of the speed of a relay's link to the relay's BandwidthRate if `limited_by` is
# "bandwidth-rate". At this ratio, the link hardly delays the traffic that Tor lets pass.
LINK_TO_LIMIT_RATIO = 10
MIN_BANDWIDTH_RATE_BYTES_PER_S = 75 * 1024
"""Tor's minimum: RELAY_REQUIRED_MIN_BANDWIDTH in src/core/or/or.h."""
MAX_BANDWIDTH_BYTES = 2**31 - 1
"""The maximum of Tor's BandwidthRate and BandwidthBurst, and thus of a rate in bytes per second
(config_ensure_bandwidth_cap in src/app/config/config.c)."""
MAX_TOTAL_RATIO = 1.05
"""The largest accepted ratio of the total capacity of a role's relays to the requested total. The
actual total exceeds the requested total if slow relays are raised to the minimum capacity."""

# The second octet of an address identifies the host's role. Shadow's examples use 100.0.0.0/8.
_NETWORKS = {
    "authority": ipaddress.IPv4Network("100.0.0.0/16"),
    **{role: ipaddress.IPv4Network(f"100.{1 + i}.0.0/16") for i, role in enumerate(RELAY_ROLES)},
    "server": ipaddress.IPv4Network("100.10.0.0/16"),
    "onion-service": ipaddress.IPv4Network("100.11.0.0/16"),
    "client": ipaddress.IPv4Network("100.20.0.0/16"),
}
ADDRESSES_PER_ROLE = 250 * 256


@dataclass(frozen=True)
class RelayGroup:
    """The relays of one role: their number, limits and total capacity.

    source: the distribution, sorted by the links' capacities. total_bit_per_s: the capacity of all
    relays together, which is the same for all seeds: the draw divides this total among the relays.
    limited_by: "link" (only the link limits a relay), "bandwidth-rate" (Tor's BandwidthRate limits
    it, and the link has spare capacity) or "both" (link and rate are from the distribution).
    representative: the distribution is cut into one slice for each relay. If this is True, each
    relay has the median capacity of its slice, so that all networks have the same capacities.
    Otherwise its capacity is drawn from the slice. rate_bit_per_s: the experiment's BandwidthRate
    for each relay without a drawn limit, or None.
    """

    count: int
    source: tuple[SourceRelay, ...]
    total_bit_per_s: float
    limited_by: str = "link"
    representative: bool = False
    rate_bit_per_s: int | None = None


@dataclass(frozen=True)
class NetworkRequest:
    """The parameters of a network to draw.

    clients: traffic class -> number of hosts. client_bit_per_s: the bandwidth in each direction, or
    None for the geography's values. perf_clients: the number of hosts that are named like the perf
    clients of tornettools. onion_services: the number of hosts with an onion service. Their regions
    are drawn as for servers, and they have the servers' bandwidth.
    """

    geography: Geography
    authorities: int
    relays: dict[str, RelayGroup]
    servers: int
    server_bit_per_s: int
    clients: dict[str, int]
    client_bit_per_s: int | None
    perf_clients: int
    packet_loss: float
    onion_services: int = 0


def sample_network(request: NetworkRequest, seed: int) -> Network:
    """Draw the network of one seed.

    A draw depends only on the seed and on its purpose, such as the latency between two places, and
    not on the rest of the network. Networks of different sizes therefore have as many draws in
    common as possible. Only the draw of a relay's capacity also depends on the number of relays of
    its role. Raises UserError if a role has more hosts than addresses, if relays cannot be as slow
    or as fast as requested, or if the geography has no places for a kind of host.
    """
    geography = request.geography
    hosts: list[Host] = []
    places: dict[str, Place] = {}
    hosts_by_role: Counter[str] = Counter()

    def attach(
        name: str, role: str, place: Place, traffic_class: str | None, own: OwnLimit | None = None
    ) -> None:
        places.setdefault(place.name, place)
        address = _address(role, hosts_by_role[role])
        hosts_by_role[role] += 1
        hosts.append(Host(name, role, traffic_class, place.name, address, own))

    def attach_alone(name: str, role: str, label: str, link: int, own: OwnLimit | None) -> None:
        region = _draw_region(geography, role, seed, label)
        attach(name, role, Place(name, region, link, link), None, own)

    def attach_shared(
        name: str, role: str, kind: str, bit_per_s: int | None, traffic_class: str | None = None
    ) -> None:
        region = _draw_region(geography, kind, seed, name)
        number = draw_integer(1, ATTACHMENTS_PER_REGION, seed, "attachment", name)
        bandwidth = (bit_per_s,) * 2 if bit_per_s else geography.client_bit_per_s(region)
        attach(name, role, Place(f"{kind}s-{region}-{number}", region, *bandwidth), traffic_class)

    for i in range(request.authorities):
        name = f"authority{i + 1}"
        attach_alone(name, "authority", name, AUTHORITY_BIT_PER_S, None)
    for role in RELAY_ROLES:
        limits = _draw_limits(request.relays[role], seed, role)
        _require_possible(request.relays[role], role, limits)
        for i, (link, own) in enumerate(limits):
            name = f"relay{len(hosts) - request.authorities + 1}{role}"
            attach_alone(name, role, f"{role} {i}", link, own)
    for i in range(request.servers):
        attach_shared(f"server{i + 1}", "server", "server", request.server_bit_per_s)
    for i in range(request.onion_services):
        name = f"onionservice{i + 1}"
        attach_shared(name, "onion-service", "server", request.server_bit_per_s)
    for traffic_class, count in request.clients.items():
        for i in range(count):
            name = client_name(traffic_class, i + 1)
            attach_shared(name, "client", "client", request.client_bit_per_s, traffic_class)
    for i in range(request.perf_clients):
        # tornettools identifies its perf clients by names of this form.
        name = f"perfclient{i + 1}exit"
        attach_shared(name, "client", "client", request.client_bit_per_s, PERF_CLASS)

    ordered = tuple(places.values())
    return Network(
        hosts=tuple(hosts),
        places=ordered,
        latency_us=_draw_latencies(geography, ordered, seed),
        packet_loss=request.packet_loss,
    )


def client_name(traffic_class: str, number: int) -> str:
    """Return the name of a client; the first client of a class has the number 1."""
    return f"{traffic_class}client{number}"


def capacity_shares(request: NetworkRequest, seed: int) -> dict[str, tuple[float, float]]:
    """Return two shares of the total capacity of each role's relays in a network, by role.

    The first is the share that relays limited by BandwidthRate have together. The second is the
    share that the relay with the largest capacity has.
    """
    shares = {}
    for role, group in request.relays.items():
        carried, limited = [], 0.0
        for link, own in _draw_limits(group, seed, role):
            rate = group.rate_bit_per_s if own is None else 8 * own.rate_bytes_per_s
            carried.append(min(link, rate or link))
            limited += carried[-1] if rate and rate < link else 0.0
        if carried:
            shares[role] = limited / sum(carried), max(carried) / sum(carried)
    return shares


def _address(role: str, index: int) -> str:
    if index >= ADDRESSES_PER_ROLE:
        raise UserError(
            f"more than {ADDRESSES_PER_ROLE} hosts of role {role}: not enough addresses",
            "lower the counts in the experiment, or SCALE",
        )
    # Addresses that end in .0 or .255 are skipped because some software rejects them.
    return str(_NETWORKS[role][1 + index % 250 + 256 * (index // 250)])


def _draw_region(geography: Geography, kind: str, seed: int, host: str) -> str:
    weights = geography.places.get(kind)
    if weights is None:
        raise UserError(
            f"{REGIONS_FILE}: the geography has no place for hosts of kind {kind}",
            f"add a line {kind}: with weights of regions to places",
        )
    point = draw(seed, "region", kind, host) * sum(weights.values())
    for region, weight in weights.items():
        point -= weight
        if point < 0:
            return region
    raise AssertionError("a draw lies below 1")


def _draw_limits(group: RelayGroup, seed: int, role: str) -> list[tuple[int, OwnLimit | None]]:
    """Draw link (bit/s) and own limit for each relay of a role.

    For n relays, the distribution is cut into n slices of equal probability, and one capacity is
    drawn from each slice. Thus a small sample keeps the shape of the distribution. Independent
    draws could give one network only slow middle relays, and another only fast middle relays.
    """

    def within_slice(i: int) -> float:
        if group.representative:
            return 0.5
        return draw(seed, "capacity", role, f"{i} of {group.count}")

    quantiles = [(i + within_slice(i)) / group.count for i in range(group.count)]
    if not quantiles:
        return []
    if group.limited_by == "both":
        # Link and limit belong together, so do not interpolate between two relays.
        last = len(group.source) - 1
        relays = [group.source[round(quantile * last)] for quantile in quantiles]
        factor = group.total_bit_per_s / sum(relay.carries_bit_per_s for relay in relays)
        return [
            (_relay_bit_per_s(one.link_bit_per_s * factor), _own_limit(one, factor))
            for one in relays
        ]
    links = [relay.link_bit_per_s for relay in group.source]
    drawn = [_quantile(links, quantile) for quantile in quantiles]
    factor = group.total_bit_per_s / sum(drawn)
    carried = [_relay_bit_per_s(value * factor) for value in drawn]
    if group.limited_by == "link":
        return [(bit_per_s, None) for bit_per_s in carried]
    # BandwidthBurst is the size of Tor's token bucket, by default a gigabyte. A simulation would
    # not empty such a bucket, so the rate would have no effect. Use the bytes of one second.
    rates = [max(MIN_BANDWIDTH_RATE_BYTES_PER_S, bit_per_s // 8) for bit_per_s in carried]
    return [(LINK_TO_LIMIT_RATIO * 8 * rate, OwnLimit(rate, rate)) for rate in rates]


def _require_possible(
    group: RelayGroup, role: str, limits: Sequence[tuple[int, OwnLimit | None]]
) -> None:
    """Raise UserError if relays cannot have the requested capacities.

    This is the case if they would carry more than MAX_TOTAL_RATIO times the requested capacity, so
    that the network would be less congested than the experiment intends, or if a relay's
    BandwidthRate is more than Tor accepts.
    """
    carried_bit_per_s = sum(
        min(link, 8 * own.rate_bytes_per_s) if own else link for link, own in limits
    )
    if carried_bit_per_s > group.total_bit_per_s * MAX_TOTAL_RATIO:
        minimum = MIN_RELAY_BIT_PER_S
        if group.limited_by != "link":
            minimum = max(minimum, 8 * MIN_BANDWIDTH_RATE_BYTES_PER_S)
        raise UserError(
            f"{role} relays are to carry {group.total_bit_per_s / 1000:.3g} Kbit/s in total, and "
            f"{group.count} of them carry at least {carried_bit_per_s / 1000:.3g} Kbit/s: none can "
            f"have less than {minimum / 1000:g} Kbit/s",
            "use a larger SCALE or capacity factor, or fewer relays",
        )
    fastest = max((own.rate_bytes_per_s for _, own in limits if own), default=0)
    if fastest > MAX_BANDWIDTH_BYTES:
        raise UserError(
            f"{role} relays: the fastest has a BandwidthRate of {fastest:,} bytes/s, and Tor "
            f"accepts at most {MAX_BANDWIDTH_BYTES:,}",
            "use a smaller capacity factor or more relays, or network.limited_by: link",
        )


def _relay_bit_per_s(value: float) -> int:
    steps = round(value / CAPACITY_STEP_BIT_PER_S)
    return max(MIN_RELAY_BIT_PER_S, steps * CAPACITY_STEP_BIT_PER_S)


def _own_limit(relay: SourceRelay, factor: float) -> OwnLimit | None:
    """Return a relay's own limit times `factor`; None if it has no limit lower than its link."""
    if relay.rate_bit_per_s is None or relay.rate_bit_per_s >= relay.link_bit_per_s:
        return None
    burst_bit = relay.burst_bit or relay.rate_bit_per_s
    rate, burst = (
        max(MIN_BANDWIDTH_RATE_BYTES_PER_S, round(value * factor / 8))
        for value in (relay.rate_bit_per_s, burst_bit)
    )
    # Tor refuses a burst that is less than the rate.
    return OwnLimit(rate, max(rate, min(burst, MAX_BANDWIDTH_BYTES)))


def _quantile(ascending: Sequence[int], quantile: float) -> float:
    position = quantile * (len(ascending) - 1)
    below = int(position)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (position - below)


def _draw_latencies(
    geography: Geography, places: Sequence[Place], seed: int
) -> dict[tuple[str, str], int]:
    latency_us = {}
    deviation = sorted(geography.rtt_deviation.items())
    for i, a in enumerate(places):
        for b in places[i:]:
            one_way_us = geography.rtt_ms_between(a.region, b.region) * 1000 / 2
            # Draw with the names in sorted order, so that the order of places does not matter.
            low, high = sorted((a.name, b.name))
            factor = _interpolate(deviation, draw(seed, "latency", low, high))
            latency_us[a.name, b.name] = max(1, round(one_way_us * factor))
    return latency_us


def _interpolate(points: Sequence[tuple[float, float]], quantile: float) -> float:
    above = min(bisect_right(points, quantile, key=lambda point: point[0]), len(points) - 1)
    (q0, f0), (q1, f1) = points[above - 1 : above + 1]
    return f0 + (f1 - f0) * (quantile - q0) / (q1 - q0)
