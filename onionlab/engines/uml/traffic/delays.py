"""Delays as TGen draws them: the distributions of its Markov models (tgen-markovmodel.c).

Each takes as many numbers from the generator, in the same order and through the same formulas in
double precision, as TGen does. So delays are TGen's to the microsecond wherever the C library's
logarithm, cosine, exponential and power agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .glib_random import GlibRandom

MAX_DELAY_US = 600_000_000
"""TGen waits no longer than ten minutes after an emission."""

# C's DBL_MIN: TGen draws again up to here, so that a logarithm is finite.
_TINY = 2.2250738585072014e-308


@dataclass(frozen=True)
class Distribution:
    """A delay's distribution: one of `PARAMETERS`, and its parameters in the order given there."""

    name: str
    parameters: tuple[float, ...]

    def draw_us(self, random: GlibRandom) -> int:
        """Draw a delay: whole microseconds, rounded to the nearest, from 0 to `MAX_DELAY_US`."""
        return _whole_us(_DRAWS[self.name](random, *self.parameters))


def _positive(random: GlibRandom) -> float:
    while True:
        value = random.real()
        if value > _TINY:
            return value


def _normal(random: GlibRandom, location: float, scale: float) -> float:
    # Box and Muller's method; the second of the two values that it gives is thrown away.
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
"""Names of distributions and, for each, of its parameters.

In microseconds, but for a lognormal one's, which are those of the logarithm of microseconds, for a
rate, which is per microsecond, and for a shape, which has no unit.
"""


def _whole_us(value: float) -> int:
    # C's round() takes halves away from zero, Python's to even numbers.
    if not 0 < value < MAX_DELAY_US:
        return MAX_DELAY_US if value > 0 else 0
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)
