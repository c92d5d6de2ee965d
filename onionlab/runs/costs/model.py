"""From what a run is to what it costs: sums of a few terms, with coefficients fitted to runs.

`configs/costs/model.json` holds the coefficients; `onionlab.runs.costs.fitting` makes it from the
measured runs beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import read_as
from onionlab.engines.base import ENDLESS_STREAM_BYTES
from onionlab.paths import shipped
from onionlab.runs.costs.calibration import Calibration
from onionlab.runs.costs.features import Features

FOLDER = "configs/costs"
MODEL_FILE = f"{FOLDER}/model.json"

CPU, MEMORY, DISK, OVERHEAD = "cpu_s", "memory_bytes", "disk_bytes", "overhead_s"
QUANTITIES = (CPU, MEMORY, DISK, OVERHEAD)
DEVIATIONS = 2.0
"""From the middle of a range to its ends."""
RUN = "run"
"""The term that every run has, whatever it is."""

TERMS: Mapping[str, tuple[str, ...]] = {
    CPU: (
        *(RUN, "tors", "tor_s", "flowing_bytes", "stalling_bytes", "streams", "traced_bytes"),
        *("peer_bytes", "peer_wakes", "hashed_bytes"),
    ),
    MEMORY: (RUN, "hosts", "tors", "log_lines", "traced_bytes", "verbose_bytes"),
    DISK: ("hosts", "tor_s", "directory_entries", "log_lines", "traced_bytes", "verbose_bytes"),
    OVERHEAD: (RUN, "tors", "log_lines", "traced_bytes", "verbose_bytes"),
}
"""Quantity -> what it is a sum of, each times a coefficient that is not negative."""
OWN_TERMS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("shadow", CPU): ("paced_bytes", "unbundled_bytes", "crowded_bytes", "kist_rounds"),
}
"""The same of an engine whose costs have more to them: engine and quantity -> besides `TERMS`."""


def terms_of(engine: str, quantity: str) -> tuple[str, ...]:
    """What a quantity of an engine is a sum of."""
    return TERMS[quantity] + OWN_TERMS.get((engine, quantity), ())


@dataclass(frozen=True)
class Range:
    """A quantity that is not known: what is expected, and what it hardly lies outside of."""

    low: float
    middle: float
    high: float

    def __post_init__(self) -> None:
        """Raises ValueError where it is no range."""
        if not 0 <= self.low <= self.middle <= self.high < math.inf:
            raise ValueError(f"no range: {self.low}, {self.middle}, {self.high}")

    def __add__(self, other: Range) -> Range:
        """What two things take that err together, as runs of one kind do."""
        return Range(self.low + other.low, self.middle + other.middle, self.high + other.high)

    def __mul__(self, factor: float) -> Range:
        """So many times that, of things that err together."""
        return Range(self.low * factor, self.middle * factor, self.high * factor)


NOTHING = Range(0.0, 0.0, 0.0)


def around(middle: float, factor: float) -> Range:
    """From `factor` times less to `factor` times more."""
    return Range(middle / factor, middle, middle * factor)


@dataclass(frozen=True)
class Miss:
    """By how much the model missed the finished runs of one kind on this machine.

    place: experiment and level; tors: processes of Tor; log_ratio: logarithm of CPU time taken to
    told.
    """

    place: tuple[str, str]
    tors: float
    log_ratio: float


class Fitted(FormatModel):
    """One quantity of one engine."""

    coefficients: dict[str, float] = Field(
        description="term -> seconds or bytes for each of it, on the reference machine"
    )
    deviation: float = Field(
        ge=0.0, description="the same in the mean: root of the mean square of the ratio's logarithm"
    )
    factor: float = Field(
        ge=1.0,
        description="two deviations of how the model missed what it had not seen: the range",
    )


class EngineCosts(FormatModel):
    """What runs of one engine cost."""

    speed: dict[str, float] = Field(
        description="measure of a machine -> exponent with which it bears on CPU time; their sum "
        "is 1"
    )
    largest_tors: float = Field(
        gt=0.0, description="processes of Tor in the largest run that CPU time was fitted to"
    )
    machines: dict[str, float] = Field(
        description="machine that runs were measured on -> by how much they took more CPU time "
        "than its measures tell: logarithm of the ratio; the mean over machines is 0"
    )
    quantities: dict[str, Fitted] = Field(description="by name")


class CostModel(FormatModel):
    """configs/costs/model.json: what a run costs, fitted to measured runs."""

    format: Literal[1] = Field(description="version")
    reference: Calibration = Field(description="the machine that coefficients are for")
    drift_factor: float = Field(
        ge=1.0, description="by which one machine's measures were found to wander"
    )
    machine_deviation: float = Field(
        ge=0.0,
        description="by how much the ratio's logarithm of all runs on one machine deviates in CPU "
        "time, because a machine's measures do not tell all of it",
    )
    level_share: float = Field(
        ge=0.0,
        le=1.0,
        description="of the variance of what runs are missed by, the part that runs of one level, "
        "of other sizes and variants, have in common",
    )
    beyond_deviation: float = Field(
        ge=0.0,
        description="by how much the ratio's logarithm deviates in CPU time of runs that are e "
        "times as large as the largest that it was fitted to",
    )
    engines: dict[str, EngineCosts] = Field(description="by name")

    def of(self, engine: str) -> EngineCosts:
        """An engine's costs; of one that was never measured, those of the one that costs most."""
        return self.engines.get(engine) or max(
            self.engines.values(), key=lambda one: one.quantities[CPU].coefficients["tor_s"]
        )

    def time(
        self, engine: str, quantity: str, features: Features, calibration: Calibration
    ) -> Range:
        """What a run takes of CPU or OVERHEAD, in seconds, on a machine with this calibration."""
        slow = slowness(self.of(engine).speed, calibration, self.reference)
        return self.need(engine, quantity, features) * slow

    def cpu_s(
        self,
        engine: str,
        features: Features,
        calibration: Calibration,
        place: tuple[str, str] = ("", ""),
        misses: Sequence[Miss] = (),
    ) -> Range:
        """CPU time of a run in seconds on a machine that has made others, if it has.

        What a run is missed by is taken as a sum of normal variables (a mixed model; the middle is
        their best linear unbiased prediction: G. K. Robinson, Statistical Science 6(1), 1991): one
        for the machine, one for how it does with networks beyond those of training, one for the
        level, and one for the run itself. What finished runs were missed by tells of the first
        three, and the range is what they leave open.

        place: experiment and level; misses: of finished runs of the same engine on this machine.
        """
        own = Miss(place, features.tors, 0.0)
        tells = np.array([[self._together(engine, a, b) for b in misses] for a in misses])
        shared = np.array([self._together(engine, own, miss) for miss in misses])
        apart = self.of(engine).quantities[CPU].deviation ** 2 * (1 - self.level_share)
        variance = self._together(engine, own, own) + apart
        middle = 0.0
        if misses:
            weights = np.linalg.solve(tells + apart * np.eye(len(misses)), shared)
            middle = float(weights @ np.array([miss.log_ratio for miss in misses]))
            variance -= float(weights @ shared)
        told = self.time(engine, CPU, features, calibration).middle * math.exp(middle)
        return around(told, math.exp(DEVIATIONS * math.sqrt(max(0.0, variance))))

    def _together(self, engine: str, one: Miss, other: Miss) -> float:
        """The covariance of what two runs on one machine are missed by; of one with itself, too."""
        variance = self.of(engine).quantities[CPU].deviation ** 2
        together = self.machine_deviation**2
        together += self.beyond_deviation**2 * math.prod(
            math.log(max(1.0, miss.tors / self.of(engine).largest_tors)) for miss in (one, other)
        )
        if one.place == other.place:
            together += self.level_share * variance
        return together

    def need(self, engine: str, quantity: str, features: Features) -> Range:
        """What a run takes of a quantity, in its unit; of time, on the reference machine."""
        fitted = self.of(engine).quantities[quantity]
        amount = sum(
            coefficient * value_of(features, term)
            for term, coefficient in fitted.coefficients.items()
        )
        if quantity == MEMORY:
            amount += features.endless_streams * ENDLESS_STREAM_BYTES
        return around(amount, fitted.factor)


def value_of(features: Features, term: str) -> float:
    """What a term's coefficient is multiplied by."""
    return 1.0 if term == RUN else float(getattr(features, term))


def slowness(speed: Mapping[str, float], calibration: Calibration, reference: Calibration) -> float:
    """How many times slower a machine is than the reference, for one engine's work."""
    ratios = (
        (float(getattr(calibration, name)) / float(getattr(reference, name)), exponent)
        for name, exponent in speed.items()
    )
    return math.exp(sum(exponent * math.log(ratio) for ratio, exponent in ratios))


def load_model(root: Path) -> CostModel:
    """The model that is shipped, or the working root's own.

    Raises:
        AnalysisError: no such file, or no model.
    """
    return read_as(CostModel, shipped(root, MODEL_FILE), "cost model")
