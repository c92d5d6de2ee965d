"""Read the distributions that networks are drawn from (configs/regions.yaml, relay-capacity.yaml).

Files in configs/relay-capacity/ can define further distributions of capacity in the same form.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter

from onionlab.errors import UserError
from onionlab.network.layout import RELAY_ROLES
from onionlab.yamlfile.field_types import PositiveNumber, Text
from onionlab.yamlfile.model import AnyModel, Model, as_user_error, in_order, key, read_model
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show

REGIONS_FILE = "configs/regions.yaml"
CAPACITY_FILE = "configs/relay-capacity.yaml"
CAPACITY_FOLDER = "configs/relay-capacity"
KIB_PER_S_IN_BIT_PER_S = 8 * 1024
HINT = "the comments at the top of the file describe its content"
MAX_HOSTS = 1_000_000
PLACED = ("authority", *RELAY_ROLES, "server", "client")
"""The kinds of host for which a geography gives each region a weight. Onion services use the
weights of servers."""

T = TypeVar("T")

_NUMBER = TypeAdapter(PositiveNumber, config=ConfigDict(strict=True, allow_inf_nan=False))

Quantile = Annotated[float, Field(ge=0, le=1, strict=False)]
# Names of places contain a region's name. They are written to Shadow's GML, which allows neither
# quotes nor non-ASCII letters.
Region = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]


@dataclass(frozen=True, order=True)
class SourceRelay:
    """A relay in a distribution of capacities.

    rate_bit_per_s, burst_bit: the limit in Tor's configuration (BandwidthRate and BandwidthBurst),
    or None if the distribution does not specify it.
    """

    link_bit_per_s: int
    rate_bit_per_s: int | None = None
    burst_bit: int | None = None

    @property
    def carries_bit_per_s(self) -> int:
        """The lower of the link's capacity and Tor's limit."""
        return min(self.link_bit_per_s, self.rate_bit_per_s or self.link_bit_per_s)


def _parse_relay(value: object) -> SourceRelay:
    numbers = value if isinstance(value, (list, tuple)) else [value]
    try:
        found = [int(_NUMBER.validate_python(one) * KIB_PER_S_IN_BIT_PER_S) for one in numbers]
    except ValueError:
        found = []
    if len(found) not in (1, 3) or found[1:] != sorted(found[1:]):
        raise ValueError(
            "expected a number more than 0, or three of them: link, BandwidthRate and "
            f"BandwidthBurst, the second no more than the third, got {show(value)}"
        )
    return SourceRelay(*found)


class Access(Model):
    """The access bandwidth of a region's clients, in Mbit/s."""

    down: PositiveNumber = key(description="to the client")
    up: PositiveNumber = key(description="from the client")


class Geography(Model):
    """Regions, distances and the places of each kind of host: a geography in configs/regions.yaml.

    The round-trip time between two hosts is that of their regions times a random factor, whose
    distribution is `rtt_deviation`. The probability that a host is in a region is proportional to
    the region's weight in `places`.
    """

    description: Text | None = key(None, description="one line")
    regions: tuple[Region, ...] = key(strict=False, min_length=1, description="their names")
    rtt_ms: dict[Text, dict[Text, PositiveNumber]] = key(
        description="round-trip time between two regions, in either order"
    )
    rtt_deviation: dict[Quantile, PositiveNumber] = key(
        min_length=1, description="factor of a pair of hosts on its regions' figure, by quantile"
    )
    client_bandwidth_mbit_per_s: dict[Text, Access] = key(description="access, by region")
    places: dict[Text, dict[Text, Annotated[int, Field(ge=0, le=MAX_HOSTS)]]] = key(
        description="weight of each region, by kind of host"
    )

    def rtt_ms_between(self, a: str, b: str) -> float:
        """Return the round-trip time between two regions, in either order."""
        return self.rtt_ms[a][b] if b in self.rtt_ms.get(a, ()) else self.rtt_ms[b][a]

    def client_bit_per_s(self, region: str) -> tuple[int, int]:
        """Return the bandwidth of a region's clients, up and down."""
        access = self.client_bandwidth_mbit_per_s[region]
        return round(access.up * 1_000_000), round(access.down * 1_000_000)


class RegionsFile(Model):
    """The content of configs/regions.yaml."""

    geographies: dict[Text, Geography] = key(description="by name")


class CapacitiesFile(Model):
    """The content of configs/relay-capacity.yaml."""

    distributions: dict[
        Text,
        Annotated[
            tuple[Annotated[SourceRelay, BeforeValidator(_parse_relay)], ...],
            key(strict=False, min_length=1),
        ],
    ] = key(
        description="relays by name: capacity of the link in KiB/s, or that and Tor's own limits"
    )


def load_geography(root: Path, name: str) -> Geography:
    """Read one geography. Raises UserError with line numbers if it is missing or incomplete."""
    content, tree = _read(root, REGIONS_FILE, RegionsFile)
    entry = _look_up(content.geographies, name, tree.file)
    problems = list(_inconsistencies(entry, tree, ("geographies", name)))
    if problems:
        raise as_user_error(tree.file, in_order(problems, [tree.file]), HINT)
    return entry


def load_relays(root: Path, name: str) -> tuple[SourceRelay, ...]:
    """Read one distribution of relays, sorted by the capacity of their links.

    If several files define the name, CAPACITY_FILE has precedence, then the first of the files in
    CAPACITY_FOLDER. Raises UserError if no file defines the name or a file is invalid.
    """
    known: dict[str, tuple[SourceRelay, ...]] = {}
    for file in _capacity_files(root):
        known = {**_read(root, file, CapacitiesFile)[0].distributions, **known}
        if name in known:
            break
    found = _look_up(known, name, CAPACITY_FILE)
    # A stable sort: relays with equal links stay in the file's order.
    return tuple(sorted(found, key=lambda relay: relay.link_bit_per_s))


def known_geographies(root: Path) -> frozenset[str] | None:
    """Return the names of all geographies, or None if the file cannot be read.

    Errors in the file are not reported here, because `load_geography` reports them.
    """
    try:
        return frozenset(_read(root, REGIONS_FILE, RegionsFile)[0].geographies)
    except UserError:
        return None


def known_capacities(root: Path) -> frozenset[str] | None:
    """Return the names of all distributions of capacity, or None if a file cannot be read."""
    try:
        files = [_read(root, file, CapacitiesFile)[0] for file in _capacity_files(root)]
    except UserError:
        return None
    return frozenset(name for one in files for name in one.distributions)


def _capacity_files(root: Path) -> list[str]:
    further = sorted(path.name for path in (root / CAPACITY_FOLDER).glob("*.yaml"))
    return [CAPACITY_FILE, *(f"{CAPACITY_FOLDER}/{name}" for name in further)]


def _read(root: Path, file: str, model: type[AnyModel]) -> tuple[AnyModel, Node]:
    path = root / file
    # `_read_once` raises a UserError if the file cannot be read.
    now = path.read_bytes() if path.is_file() else b""
    return _read_once(path, file, model, now)


@functools.lru_cache(maxsize=32)
def _read_once(path: Path, file: str, model: type[AnyModel], now: bytes) -> tuple[AnyModel, Node]:
    """Read a file. The result is cached, because every run of an experiment needs it.

    now: the file's present content, which is part of the cache key.
    """
    return read_model(path, file, model, HINT)


def _look_up(entries: Mapping[str, T], name: str, file: str) -> T:
    if name not in entries:
        raise UserError(
            f"{file}: unknown name {show(name)}{nearest(name, entries)}",
            f"choose one of: {', '.join(entries)}",
        )
    return entries[name]


def _inconsistencies(entry: Geography, tree: Node, where: tuple[str, ...]) -> Iterator[Problem]:
    """Yield the errors of an entry in which each value on its own is valid.

    An example is a pair of regions without a round-trip time.
    """
    rtt_ms = {(a, b): value for a, row in entry.rtt_ms.items() for b, value in row.items()}
    access = entry.client_bandwidth_mbit_per_s
    named = {
        "rtt_ms": set(itertools.chain(entry.rtt_ms, *entry.rtt_ms.values())),
        "client_bandwidth_mbit_per_s": set(access),
        "places": set(itertools.chain(*entry.places.values())),
    }
    for section, regions in named.items():
        for region in sorted(regions - set(entry.regions)):
            message = f"unknown region {show(region)}{nearest(region, entry.regions)}"
            yield tree.locate((*where, section), message)
    for (a, b), value in rtt_ms.items():
        # A pair may be given in both orders, but the two values must be equal.
        if a < b and rtt_ms.get((b, a), value) != value:
            message = f"{a} - {b} and {b} - {a} differ; give only one of them"
            yield tree.locate((*where, "rtt_ms", a, b), message)
    pairs = itertools.combinations_with_replacement(entry.regions, 2)
    missing = {
        "rtt_ms": [f"{a} - {b}" for a, b in pairs if {(a, b), (b, a)}.isdisjoint(rtt_ms)],
        "client_bandwidth_mbit_per_s": sorted(set(entry.regions) - set(access)),
    }
    for section, names in missing.items():
        if names:
            yield tree.locate((*where, section), f"missing: {', '.join(names)}")
    if {min(entry.rtt_deviation), max(entry.rtt_deviation)} != {0.0, 1.0}:
        yield tree.locate((*where, "rtt_deviation"), "the quantiles 0.0 and 1.0 are required")
    for kind, weights in entry.places.items():
        if kind not in PLACED:
            others = nearest(kind, PLACED) or f"; choose one of {', '.join(PLACED)}"
            yield tree.locate((*where, "places", kind), f"unknown kind of host{others}")
        elif not any(weights.values()):
            yield tree.locate((*where, "places", kind), "no region has a weight")
