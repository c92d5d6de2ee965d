"""GLib's random numbers: the same numbers per seed as those of TGen's ``g_rand_*``.

GLib's generator is MT19937, seeded with one 32-bit number like its authors' ``init_genrand`` (GLib
2.2 and later, ``glib/grand.c``). Python's `random.Random` is the same generator with another
seeding procedure, so this module computes the state and sets it.
"""

from __future__ import annotations

import random

_STATE_WORDS = 624
_MULTIPLIER = 1812433253
_MASK = 2**32 - 1
_STEP = 2.0**-32
_PYTHONS_STATE_VERSION = 3


class GlibRandom:
    """``GRand``. seed: 0 to 2**32 - 1."""

    def __init__(self, seed: int) -> None:
        words = [seed & _MASK]
        for index in range(1, _STATE_WORDS):
            before = words[-1]
            words.append((_MULTIPLIER * (before ^ (before >> 30)) + index) & _MASK)
        self._random = random.Random()
        self._random.setstate((_PYTHONS_STATE_VERSION, (*words, _STATE_WORDS), None))

    def integer(self) -> int:
        """``g_rand_int``: uniform from 0 to 2**32 - 1."""
        return self._random.getrandbits(32)

    def real(self) -> float:
        """``g_rand_double``: uniform in [0, 1), computed from two integers."""
        draw = self._random.getrandbits
        while True:
            # The order and the roundings matter: the last bit decides which edge is used.
            value = (draw(32) * _STEP + draw(32)) * _STEP
            if value < 1.0:
                return value
