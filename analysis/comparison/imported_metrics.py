"""The quantities of tgentools and tornettools, with their definitions.

The definitions differ from those in ``analysis.measures.catalogue``, so imported quantities are
never compared with this project's own. Times are measured from the command, not from the start of
the stream. A stream is assigned to the time of its completion. Failed and open downloads have no
time, so quantiles describe only completed downloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analysis.measures.metric import (
    QUANTILES,
    RATE,
    WHOLE,
    Catalogue,
    Quantity,
    rank,
    rank_label,
    time_at,
)

CIRCUIT_BUILD_TIME = "circuit_build_time"
DURATIONS = {
    "download_ttfb": "Time to first byte from the command, completed downloads",
    "download_ttlb": "Time to last byte from the command, completed downloads",
    "round_trip_time": "Time from command to response, completed downloads",
    CIRCUIT_BUILD_TIME: "Circuit build time",
}
GOODPUTS = {
    "download_goodput_500kib_1mib": "Goodput of a download between 500 KiB and 1 MiB",
    "download_goodput_4mib_5mib": "Goodput of a download between 4 MiB and 5 MiB",
}
ERROR_RATE = "download_error_rate"
RELAY_GOODPUT = "relay_goodput_bytes_per_s"

NOTES = (
    "Times start with the command (tgentools' definition), not with the stream: they exclude the "
    "SOCKS handshake and building the circuit.",
    "A download is assigned to the second in which it completed; downloads that failed or were "
    "still open at the end are excluded from all times. Nothing is treated as censored.",
    "The size of a download is the received amount, and each size is a separate class.",
    "The error rate is failed / (failed + completed) downloads of all clients together.",
    "The replicate is a simulation: each value belongs to one simulation.",
)
"""Notes that every report with these quantities includes."""


def _quantities() -> Iterator[Quantity]:
    yield Quantity(
        RELAY_GOODPUT, "Goodput of all relays, mean", "B/s", "higher", WHOLE,
        scope="both", headline=True,
    )  # fmt: skip
    # A set of runs has the rate but not the number of downloads. The change of the rate by one
    # download is therefore unknown.
    rate = replace(RATE, step="unit", resolution=0.0)
    yield Quantity(ERROR_RATE, "Download error rate", "1", "lower", rate, headline=True)
    for name, label in DURATIONS.items():
        for q in QUANTILES:
            yield Quantity(
                f"{name}_{rank(q)}_s", f"{label}, {rank_label(q)}", "s", "lower", time_at(q),
                headline=name in ("download_ttfb", "download_ttlb") and q < 0.99,
            )  # fmt: skip
    for name, label in GOODPUTS.items():
        yield Quantity(f"{name}_p50_bytes_per_s", f"{label}, median", "B/s", "higher", WHOLE)


IMPORTED = Catalogue(tuple(_quantities()))
"""All imported quantities. Each of them can be judged."""
