"""The distributions that networks are drawn from (configs/regions.yaml, relay-capacity.yaml)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from onionlab.errors import UserError

REGIONS_FILE = "configs/regions.yaml"
CAPACITY_FILE = "configs/relay-capacity.yaml"
KIB_PER_S_IN_BIT_PER_S = 8 * 1024


@dataclass(frozen=True)
class Geography:
    """Regions, distances and the places of each kind of host (see configs/regions.yaml).

    rtt_ms: keyed by both orders of a pair of regions; rtt_deviation: (quantile, factor) pairs;
    client_bit_per_s: region -> (up, down); places: kind of host -> region -> weight.
    """

    regions: tuple[str, ...]
    rtt_ms: dict[tuple[str, str], float]
    rtt_deviation: tuple[tuple[float, float], ...]
    client_bit_per_s: dict[str, tuple[int, int]]
    places: dict[str, dict[str, int]]


def load_geography(root: Path, name: str) -> Geography:
    """Read one geography. Raises UserError where it is missing or incomplete."""
    found = _section(root / REGIONS_FILE, "geographies", name)
    try:
        regions = tuple(found["regions"])
        rtt_ms: dict[tuple[str, str], float] = {}
        for a, row in found["rtt_ms"].items():
            for b, value in row.items():
                rtt_ms[a, b] = rtt_ms[b, a] = float(value)
        missing = [f"{a} - {b}" for a in regions for b in regions if (a, b) not in rtt_ms]
        if missing:
            raise UserError(f"{REGIONS_FILE}: {name}: rtt_ms lacks {', '.join(missing)}")
        return Geography(
            regions=regions,
            rtt_ms=rtt_ms,
            rtt_deviation=tuple(
                sorted((float(q), float(f)) for q, f in found["rtt_deviation"].items())
            ),
            client_bit_per_s={
                region: (round(row["up"] * 1_000_000), round(row["down"] * 1_000_000))
                for region, row in found["client_bandwidth_mbit_per_s"].items()
            },
            places={kind: dict(weights) for kind, weights in found["places"].items()},
        )
    except KeyError as missing_key:
        raise UserError(f"{REGIONS_FILE}: {name}: {missing_key} is missing") from None


def load_capacities(root: Path, name: str) -> tuple[int, ...]:
    """Read one distribution of relay capacities, in bit/s, ascending. Raises UserError."""
    found = _section(root / CAPACITY_FILE, "distributions", name)
    return tuple(sorted(int(value) * KIB_PER_S_IN_BIT_PER_S for value in found))


def _section(path: Path, section: str, name: str) -> Any:
    try:
        entries = yaml.safe_load(path.read_text())[section]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    if name not in entries:
        raise UserError(f"{path}: no {name!r} under {section}", f"there are: {', '.join(entries)}")
    return entries[name]
