"""Invented files like those of `tornettools stage`, from which tornettools can generate networks.

    .venv/bin/python tests/tornet/staging.py FOLDER

This command writes the folder ``FOLDER/staged`` (relays, users, nodes), and the atlas to
``FOLDER/tmodel``. ``FOLDER/tmodel`` also needs tmodel's own data, a copy of
https://github.com/tmodel-ccs2018/tmodel-ccs2018.github.io. Then run: make generate-network
STAGED_DIR=FOLDER/staged TMODEL_DIR=FOLDER/tmodel.

The files that `stage` reads (a month of consensuses and server descriptors) are too large to ship.
So the relays are drawn from the quantiles below. These are from the 2,011 relays of the 31% network
that neverenough-sec2021 published (model_validation/configs, shadowtor-0.31-1), which tornettools
had sampled from the consensuses of January 2019. Delays of paths are invented from the regions of
configs/regions.yaml, and no path has losses.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import random
import sys
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path

from onionlab.network.geography import load_geography
from onionlab.paths import code_root

ATLAS = "data/shadow/network/atlas_v201801.shadow_v2.gml.xz"
SEED = 2019
DATES = "2019-01-01--2019-01-31"
KIB = 1024
UNLIMITED = 2**30
"""Tor's default BandwidthRate, in bytes per second."""


@dataclass(frozen=True)
class Position:
    """Relays of one position.

    Attributes:
        count: Number of these relays in the public Tor.
        weight: Share of the consensus weight that these relays have together.
        capacity_kib_per_s: Quantiles of the relays' capacities in steps of 5%, ascending.
        log_weight_sd: Standard deviation of the logarithm of the ratio of weight to capacity.
        unlimited: Share of relays without a BandwidthRate.
    """

    count: int
    weight: float
    capacity_kib_per_s: tuple[int, ...]
    log_weight_sd: float
    unlimited: float


POSITIONS = {
    "exitguard": Position(
        count=455,
        weight=0.188,
        capacity_kib_per_s=(
            *(3490, 5200, 6280, 7270, 8580, 9710, 11160, 11780, 12220, 12800, 14440),
            *(17260, 20980, 23740, 25000, 29420, 33020, 37570, 41460, 53340, 71240),
        ),
        log_weight_sd=0.36,
        unlimited=0.47,
    ),
    "exit": Position(
        count=403,
        weight=0.042,
        capacity_kib_per_s=(
            *(110, 260, 610, 970, 1220, 1310, 1550, 1950, 2350, 3010, 4490),
            *(5690, 6720, 8540, 10390, 11780, 14300, 15900, 19540, 28140, 49100),
        ),
        log_weight_sd=1.25,
        unlimited=0.45,
    ),
    "guard": Position(
        count=2061,
        weight=0.607,
        capacity_kib_per_s=(
            *(1940, 2890, 3690, 4520, 5550, 6280, 7190, 8020, 8970, 10010, 10890),
            *(11410, 11840, 12540, 14020, 15780, 18740, 21190, 25740, 33850, 75790),
        ),
        log_weight_sd=0.30,
        unlimited=0.52,
    ),
    "middle": Position(
        count=3567,
        weight=0.163,
        capacity_kib_per_s=(
            *(20, 120, 140, 230, 350, 500, 620, 770, 960, 1060, 1220),
            *(1290, 1400, 1720, 2120, 2540, 3430, 4690, 6850, 11440, 53140),
        ),
        log_weight_sd=0.96,
        unlimited=0.19,
    ),
}
RATE_TO_CAPACITY = (3.2, 6.0, 7.0, 8.0, 9.0, 12.0, 20.0)
"""Each relay that sets a BandwidthRate draws one of these ratios of BandwidthRate to capacity. In
the published network, 1 in 70 middle relays has a lower ratio."""

COUNTRIES = {
    "de": ("europe", 397), "us": ("north-america", 320), "fr": ("europe", 263),
    "nl": ("europe", 152), "ru": ("europe", 79), "gb": ("europe", 76), "ca": ("north-america", 75),
    "se": ("europe", 55), "ch": ("europe", 53), "fi": ("europe", 48), "ua": ("europe", 32),
    "it": ("europe", 27), "pl": ("europe", 23), "jp": ("japan", 23), "au": ("australia", 17),
    "sg": ("asia-pacific", 16), "br": ("south-america", 16), "in": ("asia-pacific", 13),
}  # fmt: skip
"""Code of a country -> its region, and its number of relays in the published network."""

USERS = {
    "us": 0.20, "ru": 0.15, "de": 0.09, "fr": 0.06, "gb": 0.06, "ua": 0.05, "nl": 0.05, "ca": 0.04,
    "in": 0.06, "br": 0.06, "it": 0.05, "pl": 0.05, "jp": 0.04, "se": 0.02, "au": 0.02,
}  # fmt: skip
"""Share of users by country (invented)."""

NODES_OF_COUNTRY = 3
GEOGRAPHY = "internet-2019"


def write_staged(folder: Path, *, relays: int | None = None) -> tuple[Path, Path]:
    """Write the staged files and the atlas. Return the folders ``staged`` and ``tmodel``.

    relays: number of relays in the public Tor, by default the sum of the counts in POSITIONS.
    """
    draw = random.Random(SEED)
    staged, tmodel = folder / "staged", folder / "tmodel"
    staged.mkdir(parents=True)
    share = 1.0 if relays is None else relays / sum(one.count for one in POSITIONS.values())
    (staged / f"relayinfo_staging_{DATES}.json").write_text(json.dumps(_relays(draw, share)))
    (staged / f"userinfo_staging_{DATES}.json").write_text(json.dumps(USERS))
    nodes = _nodes()
    (staged / "networkinfo_staging.gml").write_text(f"graph [\n{nodes}]\n")
    atlas = tmodel / ATLAS
    atlas.parent.mkdir(parents=True)
    atlas.write_bytes(lzma.compress(f"graph [\n  directed 0\n{nodes}{_edges(draw)}]\n".encode()))
    return staged, tmodel


def _relays(draw: random.Random, share: float) -> dict[str, object]:
    counts = {name: max(1, round(share * one.count)) for name, one in POSITIONS.items()}
    relays = {}
    for name, position in POSITIONS.items():
        drawn = [_relay(draw, name, position, number) for number in range(counts[name])]
        total = sum(float(one["weight"]) for one in drawn)
        for one in drawn:
            one["weight"] = float(one["weight"]) / total * position.weight
            relays[str(one["fingerprint"])] = one
    stats: dict[str, float] = {"med_count_total": sum(counts.values()), "med_weight_total": 1.0}
    for name, position in POSITIONS.items():
        stats |= {f"med_count_{name}": counts[name], f"med_weight_{name}": position.weight}
    return {
        "min_unix_time": 1546300800,
        "max_unix_time": 1548975600,
        "network_stats": stats,
        "relays": relays,
    }


def _relay(
    draw: random.Random, name: str, position: Position, number: int
) -> dict[str, str | float]:
    capacity = round(KIB * _quantile(position.capacity_kib_per_s, draw.random()))
    limited = draw.random() >= position.unlimited
    rate = round(capacity * draw.choice(RATE_TO_CAPACITY)) if limited else UNLIMITED
    countries = list(COUNTRIES)
    return {
        "fingerprint": hashlib.sha1(f"{name} {number}".encode()).hexdigest().upper(),
        "address": f"{draw.randrange(20, 90)}.{draw.randrange(256)}.{draw.randrange(256)}.1",
        "running_frequency": 1.0,
        "guard_frequency": float("guard" in name),
        "exit_frequency": float("exit" in name),
        "weight": capacity * math.exp(draw.gauss(0, position.log_weight_sd)),
        "bandwidth_capacity": capacity,
        "bandwidth_rate": min(rate, UNLIMITED),
        "bandwidth_burst": min(rate, UNLIMITED),
        "country_code": draw.choices(countries, [COUNTRIES[one][1] for one in countries])[0],
    }


def _quantile(quantiles: tuple[int, ...], share: float) -> float:
    place = share * (len(quantiles) - 1)
    low = min(int(place), len(quantiles) - 2)
    return quantiles[low] + (place - low) * (quantiles[low + 1] - quantiles[low])


def _places() -> list[tuple[int, str, str]]:
    """Return each node's number, country and region."""
    all_of_them = [(c, r) for c, (r, _) in COUNTRIES.items() for _ in range(NODES_OF_COUNTRY)]
    return [(number, country, region) for number, (country, region) in enumerate(all_of_them)]


def _nodes() -> str:
    return "".join(
        f'  node [\n    id {number}\n    label "node at {number}"\n'
        f'    country_code "{country.upper()}"\n    ip_address "{20 + number}.1.1.1"\n'
        '    host_bandwidth_up "1048576 Kibit"\n    host_bandwidth_down "1048576 Kibit"\n  ]\n'
        for number, country, _ in _places()
    )


def _edges(draw: random.Random) -> str:
    geography = load_geography(code_root(), GEOGRAPHY)
    lines = []
    for (a, _, one), (b, _, other) in combinations_with_replacement(_places(), 2):
        mean_us = geography.rtt_ms_between(one, other) * 1000 / 2
        delay_us = round(mean_us * math.exp(draw.gauss(0, 0.2)))
        lines.append(
            f'  edge [\n    source {a}\n    target {b}\n    latency "{delay_us} us"\n'
            "    packet_loss 0.0\n  ]\n"
        )
    return "".join(lines)


if __name__ == "__main__":
    for made in write_staged(Path(sys.argv[1])):
        print(made)
