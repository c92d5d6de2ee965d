"""The quantities that tgentools and tornettools give, defined as they define them.

They are not those of ``analysis.measures.catalogue`` and are never compared with them. Times count
from the command, not from the stream's start; a stream counts by when it completed; a download that
failed or was still open at the end is in no time. So their quantiles are those of completed
downloads.
"""

from __future__ import annotations

from analysis.judgement.margins import RATES, TAILS, TIME_RESOLUTION_S, TIMES, Catalogue, Judged
from analysis.judgement.verdicts import Margin
from analysis.measures.catalogue import QUANTILES, Quantity

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


def rank(q: float) -> str:
    """A quantile's part of a metric's name."""
    return f"p{round(100 * q)}"


def _quantities() -> tuple[Quantity, ...]:
    made = [
        Quantity(RELAY_GOODPUT, "Goodput of all relays, mean", "B/s", "higher", "both", True),
        Quantity(ERROR_RATE, "Download error rate", "1", "lower", "class", True),
    ]
    for name, label in DURATIONS.items():
        for q in QUANTILES:
            words = "median" if q == 0.5 else rank(q)
            made.append(
                Quantity(
                    f"{name}_{rank(q)}_s",
                    f"{label}, {words}",
                    "s",
                    "lower",
                    "class",
                    name in ("download_ttfb", "download_ttlb") and q < 0.99,
                )
            )
    for name, label in GOODPUTS.items():
        made.append(
            Quantity(f"{name}_p50_bytes_per_s", f"{label}, median", "B/s", "higher", "class", False)
        )
    return tuple(made)


def _judged(quantities: tuple[Quantity, ...]) -> dict[str, Judged]:
    table = {}
    for quantity in quantities:
        if quantity.unit == "1":
            # A simulation's downloads are not counted in its files, so the step is not known.
            table[quantity.name] = Judged(RATES, 0.0)
        elif quantity.unit == "s":
            margin = TAILS if "_p99_" in quantity.name else TIMES
            table[quantity.name] = Judged(margin, TIME_RESOLUTION_S)
        else:
            table[quantity.name] = Judged(Margin(0.05), 1.0)
    return table


_QUANTITIES = _quantities()

IMPORTED = Catalogue(_QUANTITIES, _judged(_QUANTITIES))
"""All of them; each is judged."""
