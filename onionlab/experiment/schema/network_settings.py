"""The keys of `network`: hosts, and the network between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, cast

from pydantic import model_validator

from onionlab.experiment.schema.names import COUNT, IDENTIFIER, POSITIVE_COUNT, RELAY_ROLES
from onionlab.yamlfile import kinds
from onionlab.yamlfile.model import Model, key


class RelayRole(Model):
    """The relays of one role."""

    derived = frozenset({"full_count"})
    filled_in: ClassVar[dict[str, str]] = {"capacity": "(the role's name)"}

    count: Annotated[int, COUNT] = key(description="how many relays")
    capacity: Annotated[str, IDENTIFIER] = key(
        description="a distribution of `configs/relay-capacity.yaml`, or of a file that `make "
        "import-consensus` made (see docs/how-to/import-a-consensus.md)"
    )
    capacity_factor: Annotated[float, kinds.number()] = key(
        1.0, description="multiplies the capacity of each relay of this role"
    )
    bandwidth_rate_bit_per_s: Annotated[int | None, kinds.optional_rate()] = key(
        "none",
        alias="bandwidth_rate",
        description="limit that each of these relays keeps to by itself: torrc `BandwidthRate`, "
        "and `BandwidthBurst` of one second; Tor takes no less than 75 KiB/s",
    )
    full_count: int = 0
    """`count` before SCALE."""


class Relays(Model):
    """The relays, by the position they can take in a circuit. A role that is left out has none."""

    exitguard: RelayRole = key({"count": 0}, description="exits that are guards too")
    guard: RelayRole = key({"count": 0}, description="guards (entries)")
    exit: RelayRole = key({"count": 0}, description="exits that are no guards")
    middle: RelayRole = key({"count": 0}, description="relays that are neither")

    @model_validator(mode="before")
    @classmethod
    def _name_capacities(cls, value: object) -> object:
        """A role's capacities follow the distribution of its own name unless told otherwise."""
        if not isinstance(value, dict):
            return value
        named: dict[object, object] = dict(value)
        for role in RELAY_ROLES:
            entry = named.get(role, {"count": 0})
            named[role] = {"capacity": role, **entry} if isinstance(entry, dict) else entry
        return named

    def items(self) -> Iterator[tuple[str, RelayRole]]:
        """Role name and role, in the order of :data:`RELAY_ROLES`."""
        for role in RELAY_ROLES:
            yield role, cast(RelayRole, getattr(self, role))

    @property
    def count(self) -> int:
        """All relays together, without the authorities."""
        return sum(role.count for _, role in self.items())


class Servers(Model):
    """The web servers, outside of the Tor network."""

    count: Annotated[int, COUNT] = key(description="how many servers")
    bandwidth_bit_per_s: Annotated[int, kinds.bandwidth_or_regions(regions=False)] = key(
        alias="bandwidth", description="of each server, up and down alike"
    )


class Clients(Model):
    """What holds for the clients of all classes."""

    bandwidth_bit_per_s: Annotated[int | None, kinds.bandwidth_or_regions(regions=True)] = key(
        "regions",
        alias="bandwidth",
        description="of each client, up and down alike; `regions`: as the geography says",
    )


class NetworkSettings(Model):
    """The hosts and the network between them."""

    derived = frozenset({"scale"})

    authorities: Annotated[int, POSITIVE_COUNT] = key(
        3, description="directory authorities; SCALE leaves them as they are, they carry no load"
    )
    relays: Relays = key(description="relays by role")
    capacity_factor: Annotated[float, kinds.number()] = key(
        1.0,
        description="multiplies the capacity of every relay (see docs/explanation/calibration.md)",
    )
    capacities: Annotated[str, kinds.choice("random", "representative")] = key(
        "random",
        description="which capacities of a distribution the relays of a role have, one from each "
        "of as many equal slices as there are relays: `random`: one at a random point of its "
        "slice, so that networks differ; `representative`: the one in the middle of its slice, so "
        "that capacities are the same in all networks, while places, latencies, keys and load are "
        "drawn as before",
    )
    limited_by: Annotated[str, kinds.choice("link", "bandwidth-rate", "both")] = key(
        "link",
        description="what keeps relays to their capacity: `link`: the access link; "
        "`bandwidth-rate`: Tor's own limit, with a burst of one second, on a link of ten times as "
        "much; `both`: link, rate and burst are those of one relay of the distribution",
    )
    servers: Servers = key(description="servers that the clients fetch from")
    onion_services: Annotated[int, COUNT] = key(
        0,
        description="onion services, each with a Tor and a web server of its own on a link of "
        "`servers`' bandwidth; classes of `to: onion-services` fetch from them; SCALE leaves one "
        "at least",
    )
    clients: Clients = key({}, description="what holds for all clients")
    perf_clients: Annotated[int, COUNT] = key(
        0, description="clients named as tornettools' `perfclientNexit` hosts, for its own tools"
    )
    middle_hops: Annotated[str, kinds.choice("weighted", "dedicated")] = key(
        "weighted",
        description="`weighted`: Tor's bandwidth weights give guards and exits a share of the "
        "middle position; `dedicated`: the relays of role middle carry all of it "
        "(see docs/explanation/calibration.md)",
    )
    geography: Annotated[str, IDENTIFIER] = key(
        description="a geography of `configs/regions.yaml`: places of hosts, latencies, "
        "access bandwidth"
    )
    packet_loss: Annotated[float, kinds.fraction()] = key(
        "0 %", description="share of packets lost on each path between two places"
    )
    scale: float = 1.0
    """SCALE: what the counts were multiplied by."""

    def capacity_total_factor(self, role: str) -> float:
        """What each relay of a role has its drawn capacity multiplied by.

        It joins the calibration's factors and makes up for rounding: a role of `full_count` relays
        scaled to `count` keeps exactly `scale` times its full total, if the draws for `count`
        relays have the same mean as those for `full_count`. Without relays it is 0.
        """
        entry = dict(self.relays.items())[role]
        if entry.count == 0:
            return 0.0
        factor = self.capacity_factor * entry.capacity_factor
        return factor * (self.scale * entry.full_count) / entry.count
