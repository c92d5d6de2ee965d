"""TGen's random numbers, and the delay distributions of its Markov models (tgen-markovmodel.c).

Each distribution uses the same random numbers in the same order and the same double-precision
formulas as TGen. In whole microseconds, delays are therefore identical to TGen's if the logarithm,
cosine, exponential and power functions of both programs give the same results.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

MAX_DELAY_US = 600_000_000
"""TGen's limit of the delay after an event of a model: ten minutes."""

# C's DBL_MIN. TGen replaces a random number that does not exceed this value, because its logarithm
# must be finite.
_TINY = 2.2250738585072014e-308

_STATE_WORDS = 624
_STEP = 2.0**-32


class GlibRandom:
    """The random numbers of GLib's ``g_rand_*``. seed: 0 to 2**32 - 1.

    GLib's generator is MT19937, seeded with one 32-bit number as by ``init_genrand`` of MT19937's
    authors (``glib/grand.c``). Python's `random.Random` is the same generator with another seeding
    procedure, so this class computes the state and sets it.
    """

    def __init__(self, seed: int) -> None:
        word = seed % 2**32
        words = [word]
        for index in range(1, _STATE_WORDS):
            word = (1812433253 * (word ^ (word >> 30)) + index) % 2**32
            words.append(word)
        self._random = random.Random()
        self._random.setstate((self._random.VERSION, (*words, _STATE_WORDS), None))

    def integer(self) -> int:
        """Return a uniform random integer from 0 to 2**32 - 1, as ``g_rand_int`` does."""
        return self._random.getrandbits(32)

    def real(self) -> float:
        """Return a uniform random number in [0, 1), as ``g_rand_double`` does."""
        draw = self._random.getrandbits
        while True:
            # Keep GLib's order of the draws and of the operations, because the last bit of the
            # result may decide which edge of a model is used.
            value = (draw(32) * _STEP + draw(32)) * _STEP
            if value < 1.0:
                return value


def _positive(numbers: GlibRandom) -> float:
    while True:
        value = numbers.real()
        if value > _TINY:
            return value


def _normal(numbers: GlibRandom, location: float, scale: float) -> float:
    # The Box-Muller method gives two values. TGen discards the second one.
    u, v = _positive(numbers), _positive(numbers)
    return location + scale * (math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v))


def _lognormal(numbers: GlibRandom, location: float, scale: float) -> float:
    try:
        return math.exp(_normal(numbers, location, scale))
    except OverflowError:
        return math.inf


def _exponential(numbers: GlibRandom, rate: float) -> float:
    return -math.log(_positive(numbers)) / rate


def _pareto(numbers: GlibRandom, scale: float, shape: float) -> float:
    power = math.pow(_positive(numbers), 1.0 / shape)
    return scale / power if power else math.inf


def _uniform(numbers: GlibRandom, low: float, high: float) -> float:
    return low + (high - low) * _positive(numbers)


_DRAWS: dict[str, tuple[Callable[..., float], tuple[str, ...]]] = {
    "normal": (_normal, ("param_location", "param_scale")),
    "lognormal": (_lognormal, ("param_location", "param_scale")),
    "exponential": (_exponential, ("param_rate",)),
    "pareto": (_pareto, ("param_scale", "param_shape")),
    "uniform": (_uniform, ("param_low", "param_high")),
}

PARAMETERS = {name: parameters for name, (_, parameters) in _DRAWS.items()}
"""Names of distributions with the names of their parameters.

The unit is microseconds, except for lognormal distributions (the logarithm of microseconds), rates
(per microsecond) and shapes (without a unit).
"""


@dataclass(frozen=True)
class Distribution:
    """The distribution of a delay. name: a key of `PARAMETERS`, which lists the parameters.

    parameters: the values of these parameters, in the same order.
    """

    name: str
    parameters: tuple[float, ...]

    def draw_us(self, numbers: GlibRandom) -> int:
        """Draw a delay in whole microseconds, rounded to the nearest, from 0 to `MAX_DELAY_US`."""
        value = _DRAWS[self.name][0](numbers, *self.parameters)
        if not 0 < value < MAX_DELAY_US:
            return MAX_DELAY_US if value > 0 else 0
        # Round halves up, like C's round() in TGen. Python's round() rounds halves to even numbers.
        whole = math.floor(value)
        return whole + (value - whole >= 0.5)
