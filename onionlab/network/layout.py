"""The layout of a simulated network, as plain data that every engine reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RELAY_ROLES = ("exitguard", "guard", "exit", "middle")


@dataclass(frozen=True)
class Place:
    """A point of the network, to which hosts with the same access bandwidth are attached.

    Each host has the full bandwidth; hosts at one place do not share it.
    """

    name: str
    region: str
    up_bit_per_s: int
    down_bit_per_s: int


@dataclass(frozen=True)
class Link:
    """The bandwidth of a host's access link, to the network and from it."""

    up_bit_per_s: int
    down_bit_per_s: int


@dataclass(frozen=True)
class OwnLimit:
    """The rate limit that a relay applies to itself: Tor's token bucket.

    rate_bytes_per_s: torrc BandwidthRate; burst_bytes: torrc BandwidthBurst.
    """

    rate_bytes_per_s: int
    burst_bytes: int


@dataclass(frozen=True)
class Host:
    """One simulated machine.

    Attributes:
        name: Name of the host.
        role: "authority", one of RELAY_ROLES, "server", "onion-service" or "client". In imported
            networks, the role is one of tornet.model.ROLES. In experiments of kind `peers`, it is
            "peer".
        traffic_class: A client's class in the experiment, such as "bulk" or "web", or "perf"; None
            for other hosts.
        place: Name of the place that the host is attached to.
        address: IP address of the host.
        own_limit: A relay's own limit, if it is lower than the bandwidth of the relay's link;
            otherwise None.
        link: The host's own link; None if the host has the bandwidth of its place.
    """

    name: str
    role: str
    traffic_class: str | None
    place: str
    address: str
    own_limit: OwnLimit | None = None
    link: Link | None = None


@dataclass(frozen=True)
class Network:
    """Hosts, the places they are attached to, and the one-way latency between the places.

    latency_us: one-way latency in whole microseconds, at least 1. A key is a pair of names; the
    place that comes first in `places` comes first in the pair. A place is also paired with itself.
    packet_loss: the share of packets that a path loses. path_loss: this share for each path whose
    share differs from `packet_loss`, with keys as in `latency_us`.
    """

    hosts: tuple[Host, ...]
    places: tuple[Place, ...]
    latency_us: dict[tuple[str, str], int]
    packet_loss: float
    path_loss: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def by_role(self, *roles: str) -> list[Host]:
        """Return the hosts of the given roles, in the network's order."""
        return [host for host in self.hosts if host.role in roles]

    @property
    def relays(self) -> list[Host]:
        """Return all relays but the authorities."""
        return self.by_role(*RELAY_ROLES)

    def place_of(self, host: Host) -> Place:
        """Return the place that a host is attached to."""
        return next(place for place in self.places if place.name == host.place)

    def link_of(self, host: Host) -> Link:
        """Return a host's access link."""
        if host.link is not None:
            return host.link
        place = self.place_of(host)
        return Link(place.up_bit_per_s, place.down_bit_per_s)

    def loss_of(self, pair: tuple[str, str]) -> float:
        """Return the share of packets that a path loses; pair: as in `latency_us`."""
        return self.path_loss.get(pair, self.packet_loss)

    def carries_bit_per_s(self, host: Host) -> int:
        """Return how much a host can send: the lower of its link's bandwidth and its own limit."""
        link_bit_per_s = self.link_of(host).up_bit_per_s
        if host.own_limit is None:
            return link_bit_per_s
        return min(link_bit_per_s, 8 * host.own_limit.rate_bytes_per_s)
