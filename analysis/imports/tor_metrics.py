"""Import of tornettools' ``tor_metrics_*.json``, measurements of the public Tor network.

`tornettools stage` (2.0, parse_onionperf.py) creates the file from OnionPerf's measurements and the
bandwidth data of Tor Metrics. The file does not include downloads from onion services.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from analysis.errors import AnalysisError
from analysis.formats.study import STEPS, PublicTor
from analysis.imports.simulation import Measured, read_other
from analysis.inference.bands import lower_quantiles

LISTS = {
    "circuit_rtt": "round_trip_time",
    "circuit_build_times": "circuit_build_time",
    "client_goodput": "goodput_500kib_1mib",
    "client_goodput_5MiB": "goodput_4mib_5mib",
}
"""Key of a list in the file -> quantity in ``PublicTor``. Times are in s, goodputs in bit/s."""

SIZES = {"51200": "last_byte_50kib", "1048576": "last_byte_1mib", "5242880": "last_byte_5mib"}

ERROR_RATE, RELAY_GOODPUT = "error_rate", "relay_goodput"

GBIT = 1e9


class _Day(BaseModel):
    requests: Measured
    timeouts: Measured
    failures: Measured

    @property
    def error_rate(self) -> float | None:
        """Percentage of the downloads that failed or timed out; None if there were no downloads."""
        failed = self.timeouts + self.failures
        return 100.0 * failed / self.requests if self.requests else None


class _TorMetrics(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Any]

    circuit_rtt: list[Measured] = []
    circuit_build_times: list[Measured] = []
    client_goodput: list[Measured] = []
    client_goodput_5MiB: list[Measured] = []  # noqa: N815
    download_times: dict[str, list[Measured]] = {}
    daily_counts: dict[str, _Day] = {}
    relay_goodput: dict[str, Measured] = {}


def read_tor_metrics(path: Path, network_scale: float | None = None) -> PublicTor:
    """Return the quantile functions of a file's measurements, plain or xz, and what was ignored.

    Raises:
        AnalysisError: the file is missing, not JSON, of another kind, or without any value.
    """
    content: _TorMetrics = read_other(_TorMetrics, path)
    not_counted = [f"key {key}" for key in content.model_extra or {}]
    values = {name: getattr(content, key) for key, name in LISTS.items()}
    for size, seconds in content.download_times.items():
        if size in SIZES:
            values[SIZES[size]] = seconds
        elif size != "ALL":
            not_counted.append(f"downloads of {size} bytes")
    rates = [day.error_rate for day in content.daily_counts.values()]
    values[ERROR_RATE] = [rate for rate in rates if rate is not None]
    if idle := rates.count(None):
        not_counted.append(f"{idle} days without downloads")
    values[RELAY_GOODPUT] = [GBIT * speed for speed in content.relay_goodput.values()]
    found = {name: np.array(some) for name, some in values.items() if some}
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
