"""The quantities that tgentools and tornettools give, defined as they define them.

They are not those of ``analysis.measures.catalogue`` and are never compared with them. Times count
from the command, not from the stream's start; a stream counts by when it completed; a download that
failed or was still open at the end is in no time. So their quantiles are those of completed
downloads.
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
    rank_words,
    time_at,
)

DURATIONS = {
    "download_ttfb": "Time to first byte from the command, completed downloads",
    "download_ttlb": "Time to last byte from the command, completed downloads",
    "round_trip_time": "Time from command to response, completed downloads",
    "circuit_build_time": "Circuit build time",
}
GOODPUTS = {
    "download_goodput_500kib_1mib": "Goodput of a download between 500 KiB and 1 MiB",
    "download_goodput_4mib_5mib": "Goodput of a download between 4 MiB and 5 MiB",
}
ERROR_RATE = "download_error_rate"
RELAY_GOODPUT = "relay_goodput_bytes_per_s"

NOTES = (
    "Times count from the command (tgentools' definition), not from the stream's start: the SOCKS "
    "handshake and the circuit's build are not in them.",
    "A download belongs to the second in which it completed; downloads that failed or were still "
    "open at the end are in no time. Nothing is treated as censored.",
    "A download's size is what was received, so that sizes are separate classes.",
    "The error rate is failed / (failed + completed) downloads of all clients together.",
    "The replicate is a simulation: each value is one simulation's.",
)
"""Stated in every report that shows them."""


def _quantities() -> Iterator[Quantity]:
    yield Quantity(
        name=RELAY_GOODPUT,
        label="Goodput of all relays, mean",
        unit="B/s",
        better="higher",
        scope="both",
        headline=True,
        judged=WHOLE,
    )
    yield Quantity(
        name=ERROR_RATE,
        label="Download error rate",
        unit="1",
        better="lower",
        headline=True,
        # A simulation's downloads are not counted in its files, so the step is not known.
        judged=replace(RATE, step="unit", resolution=0.0),
    )
    for name, label in DURATIONS.items():
        for q in QUANTILES:
            yield Quantity(
                name=f"{name}_{rank(q)}_s",
                label=f"{label}, {rank_words(q)}",
                unit="s",
                better="lower",
                headline=name in ("download_ttfb", "download_ttlb") and q < 0.99,
                judged=time_at(q),
            )
    for name, label in GOODPUTS.items():
        yield Quantity(
            name=f"{name}_p50_bytes_per_s",
            label=f"{label}, median",
            unit="B/s",
            better="higher",
            judged=WHOLE,
        )


IMPORTED = Catalogue(tuple(_quantities()))
"""All of them; each is judged."""
