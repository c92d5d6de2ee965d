"""The delay distributions of TGen's Markov models (tgen-markovmodel.c).

Each distribution uses the same random numbers in the same order and the same double-precision
formulas as TGen. Delays are therefore identical to TGen's in microseconds if the C library's
logarithm, cosine, exponential and power functions agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .glib_random import GlibRandom

MAX_DELAY_US = 600_000_000
"""TGen's limit of the wait after an emission: ten minutes."""

# C's DBL_MIN. TGen repeats smaller draws so that a logarithm is finite.
_TINY = 2.2250738585072014e-308


@dataclass(frozen=True)
class Distribution:
    """A delay's distribution: one of `PARAMETERS`, and its parameters in the order listed there."""

    name: str
    parameters: tuple[float, ...]

    def draw_us(self, random: GlibRandom) -> int:
        """Draw a delay in whole microseconds, rounded to the nearest, from 0 to `MAX_DELAY_US`."""
        return _whole_us(_DRAWS[self.name](random, *self.parameters))


def _positive(random: GlibRandom) -> float:
    while True:
        value = random.real()
        if value > _TINY:
            return value


def _normal(random: GlibRandom, location: float, scale: float) -> float:
    # The Box-Muller method; TGen discards the second of its two values.
    u, v = _positive(random), _positive(random)
    return location + scale * (math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v))


def _lognormal(random: GlibRandom, location: float, scale: float) -> float:
    try:
        return math.exp(_normal(random, location, scale))
    except OverflowError:
        return math.inf


def _exponential(random: GlibRandom, rate: float) -> float:
    return -math.log(_positive(random)) / rate


def _pareto(random: GlibRandom, scale: float, shape: float) -> float:
    power = math.pow(_positive(random), 1.0 / shape)
    return scale / power if power else math.inf


def _uniform(random: GlibRandom, low: float, high: float) -> float:
    return low + (high - low) * _positive(random)


_DRAWS: dict[str, Callable[..., float]] = {
    "normal": _normal,
    "lognormal": _lognormal,
    "exponential": _exponential,
    "pareto": _pareto,
    "uniform": _uniform,
}

PARAMETERS = {
    "normal": ("param_location", "param_scale"),
    "lognormal": ("param_location", "param_scale"),
    "exponential": ("param_rate",),
    "pareto": ("param_scale", "param_shape"),
    "uniform": ("param_low", "param_high"),
}
"""Names of distributions with the names of their parameters.

The unit is microseconds, except for lognormal distributions (the logarithm of microseconds), rates
(per microsecond) and shapes (without a unit).
"""


def _whole_us(value: float) -> int:
    # C's round() rounds halves away from zero, Python's rounds them to even numbers.
    if not 0 < value < MAX_DELAY_US:
        return MAX_DELAY_US if value > 0 else 0
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)
