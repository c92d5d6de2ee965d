"""The keys of `network`: hosts, and the network between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, cast

from pydantic import Field, model_validator

from onionlab.network.layout import RELAY_ROLES
from onionlab.yamlfile.field_types import (
    Derived,
    Fraction,
    OptionalRate,
    PositiveNumber,
    Rate,
    RegionalRate,
)
from onionlab.yamlfile.model import Model, key

MAX_COUNT = 1_000_000
COUNT = Field(ge=0, le=MAX_COUNT)
POSITIVE_COUNT = Field(ge=1, le=MAX_COUNT)
IDENTIFIER = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")

ClassName = Annotated[str, Field(pattern=r"^[a-z]+$")]
AnyClassName = Annotated[str, IDENTIFIER]
"""Name of a class in any kind of experiment, such as perf-exit in an imported network."""
LevelName = Annotated[str, IDENTIFIER]
MetricName = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
OptionName = Annotated[str, Field(pattern=r"^_{0,2}[A-Za-z][A-Za-z0-9_]*$")]


class RelayRole(Model):
    """The relays of one role."""

    count: Annotated[int, COUNT] = key(description="how many relays")
    capacity: Annotated[str, IDENTIFIER] = key(
        "",
        validate_default=False,
        description="a distribution of `configs/relay-capacity.yaml`, or of a file that `make "
        "import-consensus` wrote (see docs/how-to/import-a-consensus.md); by default the role's "
        "name",
    )
    capacity_factor: PositiveNumber = key(
        1.0, description="multiplies the capacity of each relay of this role"
    )
    bandwidth_rate_bit_per_s: OptionalRate = key(
        "none",
        alias="bandwidth_rate",
        description="limit in the torrc of each of these relays: `BandwidthRate`, and "
        "`BandwidthBurst` of one second; Tor needs at least 75 KiB/s",
    )
    full_count: Derived[int] = 0
    """The value of `count` in the file, before SCALE multiplies it."""


class Relays(Model):
    """The relays, by their possible positions in a circuit. By default a role has no relays."""

    exitguard: RelayRole = key({"count": 0}, description="exits that are guards too")
    guard: RelayRole = key({"count": 0}, description="guards (entries)")
    exit: RelayRole = key({"count": 0}, description="exits that are not guards")
    middle: RelayRole = key({"count": 0}, description="relays that are neither guards nor exits")

    @model_validator(mode="before")
    @classmethod
    def _name_capacities(cls, value: object) -> object:
        """Set a role's `capacity` to the name of the role, if the role has no `capacity`."""
        if not isinstance(value, dict):
            return value
        named: dict[object, object] = dict(value)
        for role in RELAY_ROLES:
            entry = named.get(role, {"count": 0})
            named[role] = {"capacity": role, **entry} if isinstance(entry, dict) else entry
        return named

    def items(self) -> Iterator[tuple[str, RelayRole]]:
        """Yield the name and the settings of each role, in the order of :data:`RELAY_ROLES`."""
        for role in RELAY_ROLES:
            yield role, cast(RelayRole, getattr(self, role))

    @property
    def count(self) -> int:
        """Return the number of all relays without the authorities."""
        return sum(role.count for _, role in self.items())


class Servers(Model):
    """The web servers, outside of the Tor network."""

    count: Annotated[int, COUNT] = key(description="how many servers")
    bandwidth_bit_per_s: Rate = key(
        alias="bandwidth", description="of each server, in each direction"
    )


class Clients(Model):
    """Settings of the clients of all classes."""

    bandwidth_bit_per_s: RegionalRate = key(
        "regions",
        alias="bandwidth",
        description="of each client, in each direction; `regions`: as in the geography",
    )


class NetworkSettings(Model):
    """The hosts and the network between them."""

    authorities: Annotated[int, POSITIVE_COUNT] = key(
        3, description="directory authorities; SCALE does not change them: they carry no load"
    )
    relays: Relays = key(description="relays by role")
    capacity_factor: PositiveNumber = key(
        1.0,
        description="multiplies the capacity of every relay (see docs/explanation/calibration.md)",
    )
    capacities: Literal["random", "representative"] = key(
        "random",
        description="which capacities of a distribution the relays of a role have, one from each "
        "of as many equal slices as there are relays: `random`: one at a random point of its "
        "slice, so that networks differ; `representative`: the one in the middle of its slice, so "
        "that capacities are the same in all networks, while places, latencies, keys and load are "
        "drawn as before",
    )
    limited_by: Literal["link", "bandwidth-rate", "both"] = key(
        "link",
        description="what limits relays to their capacity: `link`: the access link; "
        "`bandwidth-rate`: Tor's own limit, with a burst of one second, on a link of ten times as "
        "much; `both`: link, rate and burst are those of one relay of the distribution",
    )
    servers: Servers = key(description="servers that the clients fetch from")
    onion_services: Annotated[int, COUNT] = key(
        0,
        description="onion services, each with its own Tor and web server on a link of "
        "`servers`' bandwidth; classes of `to: onion-services` fetch from them; SCALE leaves one "
        "at least",
    )
    clients: Clients = key({}, description="settings of all clients")
    perf_clients: Annotated[int, COUNT] = key(
        0, description="clients named as tornettools' `perfclientNexit` hosts, for its own tools"
    )
    middle_hops: Literal["weighted", "dedicated"] = key(
        "weighted",
        description="`weighted`: Tor's bandwidth weights give guards and exits a share of the "
        "middle position; `dedicated`: the relays of role middle carry all of it, except in "
        "small networks such as that of `quick` (see docs/explanation/calibration.md)",
    )
    geography: Annotated[str, IDENTIFIER] = key(
        description="a geography of `configs/regions.yaml`: places of hosts, latencies, "
        "access bandwidth"
    )
    packet_loss: Fraction = key(
        "0 %", description="share of packets lost on each path between two places"
    )
    scale: Derived[float] = 1.0
    """SCALE, the factor by which the counts were multiplied."""

    def capacity_total_factor(self, role: str) -> float:
        """Return the factor for the capacity of each relay of a role, or 0 if there are no relays.

        This is the product of both keys `capacity_factor` and of a correction for the rounding of
        counts. Because of the correction, the total capacity of the role is exactly `scale` times
        the total at full size, provided that the capacities drawn for `count` relays have the same
        mean as the capacities drawn for `full_count` relays.
        """
        entry = dict(self.relays.items())[role]
        if entry.count == 0:
            return 0.0
        factor = self.capacity_factor * entry.capacity_factor
        return factor * (self.scale * entry.full_count) / entry.count
