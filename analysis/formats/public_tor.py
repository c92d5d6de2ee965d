"""Measurements of the public Tor network, for lines in figures of simulated networks."""

from __future__ import annotations

from pydantic import Field

from analysis.formats.format_model import FormatModel

STEPS = 1000
"""Quantile functions are stored at the shares 0, 1/STEPS, ... 1."""


class PublicTor(FormatModel):
    """Measurements of the public Tor, as `tornettools stage` collects them: quantile functions."""

    source: str = Field(description="name of their file, tor_metrics_*.json")
    sha256: str = Field(description="of that file")
    network_scale: float | None = Field(
        default=None,
        gt=0,
        description="size of the simulated networks as a share of the public Tor's, by which its "
        "relays' goodput is multiplied; null: unknown, and not shown",
    )
    counts: dict[str, int] = Field(description="quantity -> how many values were measured of it")
    quantiles: dict[str, tuple[float, ...]] = Field(
        description="quantity (of analysis.figures.tornettools) -> its quantiles at the shares 0, "
        "0.001, ... 1, each a measured value: times in s, goodputs in bit/s, error rates "
        "in per cent"
    )
    not_counted: tuple[str, ...] = Field(
        default=(), description="notes on ignored parts of the file"
    )
