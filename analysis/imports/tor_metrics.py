"""Import of tornettools' ``tor_metrics_*.json``, measurements of the public Tor network.

`tornettools stage` (2.0, parse_onionperf.py) creates it from OnionPerf's measurements and the
bandwidth data of Tor Metrics. It does not include downloads from onion services.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from analysis.arrays import Floats
from analysis.errors import AnalysisError
from analysis.formats.public_tor import STEPS, PublicTor
from analysis.imports.reading import LocatedValue, read_located
from analysis.inference.mean_quantiles import lower_quantiles

LISTS = {
    "circuit_rtt": "round_trip_time",
    "circuit_build_times": "circuit_build_time",
    "client_goodput": "goodput_500kib_1mib",
    "client_goodput_5MiB": "goodput_4mib_5mib",
}
"""Key -> name of its list in this project. Times are in s, goodputs in bit/s."""

SIZES = {"51200": "last_byte_50kib", "1048576": "last_byte_1mib", "5242880": "last_byte_5mib"}

ERROR_RATE, RELAY_GOODPUT = "error_rate", "relay_goodput"

GBIT = 1e9


def read_tor_metrics(path: Path, network_scale: float | None = None) -> PublicTor:
    """Return the quantile functions of a file's measurements, and what was ignored.

    Args:
        path: the file, plain or xz.
        network_scale: see ``PublicTor``.

    Raises:
        AnalysisError: the file is missing, not JSON, of another kind, or without any value.
    """
    content = read_located(path)
    known = {*LISTS, "download_times", "daily_counts", "relay_goodput"}
    not_counted = [f"key {key}" for key, _ in content.items() if key not in known]
    values: dict[str, Floats] = {}
    for key, name in LISTS.items():
        part = content.get(key)
        values[name] = np.array([] if part is None else part.numbers())
    times = content.get("download_times")
    for size, size_times in () if times is None else times.items():
        if size in SIZES:
            values[SIZES[size]] = np.array(size_times.numbers())
        elif size != "ALL":
            not_counted.append(f"downloads of {size} bytes")
    daily = content.get("daily_counts")
    rates = [] if daily is None else [_error_rate(day) for _, day in daily.items()]
    values[ERROR_RATE] = np.array([rate for rate in rates if rate is not None])
    if idle := rates.count(None):
        not_counted.append(f"{idle} days without downloads")
    relays = content.get("relay_goodput")
    gbit = [] if relays is None else [value.number() for _, value in relays.items()]
    values[RELAY_GOODPUT] = GBIT * np.array(gbit)
    found = {name: some for name, some in values.items() if some.size}
    if not found:
        raise AnalysisError(
            f"{path} has no measurement of the public Tor",
            "give a tor_metrics_*.json from `tornettools stage`",
        )
    shares = np.arange(STEPS + 1) / STEPS
    return PublicTor(
        source=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        network_scale=network_scale,
        not_counted=tuple(not_counted),
        counts={name: int(some.size) for name, some in found.items()},
        quantiles={
            name: tuple(lower_quantiles(some, shares).tolist()) for name, some in found.items()
        },
    )


def _error_rate(day: LocatedValue) -> float | None:
    """Return the percentage of a day's downloads that failed or timed out; None without any."""
    counts = []
    for key in ("requests", "timeouts", "failures"):
        part = day.get(key)
        if part is None:
            raise day.wrong(f'"{key}"')
        counts.append(part.number())
    requests, timeouts, failures = counts
    return 100.0 * (timeouts + failures) / requests if requests else None
