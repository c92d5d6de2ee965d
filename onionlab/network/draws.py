"""Random draws that depend only on a seed and a label.

Every draw of a network has its own label, such as ("latency", "relay1guard", "server2"). If two
networks with the same seed have a host in common, the host's draws are the same in both networks.
Therefore their runs can be paired. The bytes come from SHAKE-256, so they are the same on every
machine and in every version of Python and numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

MAX_SEED = 2**32 - 1
"""Shadow's general.seed is an unsigned 32-bit integer."""


def run_seed(seed: int, repeat: int) -> int:
    """Return the seed of a run, which is different for each repeat on a network.

    The first repeat has the network's own seed.
    """
    if repeat == 1:
        return seed
    return draw_integer(0, MAX_SEED, seed, "repeat", str(repeat))


def draw_bytes(count: int, seed: int, *label: str) -> bytes:
    """Return `count` pseudo-random bytes for one seed and label."""
    return hashlib.shake_256(_text(seed, label)).digest(count)


def draw(seed: int, *label: str) -> float:
    """Return a number in [0, 1) for one seed and label, with 53 random bits.

    The numbers for different labels are independent and uniformly distributed.
    """
    return int.from_bytes(draw_bytes(8, seed, *label), "big") / 2**64 // 2**-53 * 2**-53


def draw_integer(low: int, high: int, seed: int, *label: str) -> int:
    """Return an integer in the closed interval [low, high] for one seed and label."""
    return low + int(draw(seed, *label) * (high - low + 1))


def draw_order(items: Sequence[T], seed: int, *label: str) -> list[T]:
    """Return the items in a random order.

    Which of two items comes first does not depend on the other items.
    """
    return sorted(items, key=lambda item: (draw_bytes(16, seed, *label, str(item)), str(item)))


class ByteStream:
    """An endless stream of pseudo-random bytes for key generation."""

    _BLOCK_BYTES = 4096

    def __init__(self, seed: int, *label: str) -> None:
        self._seed = seed
        self._label = label
        self._blocks = 0
        self._rest = b""

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        while len(self._rest) < count:
            self._rest += draw_bytes(
                self._BLOCK_BYTES, self._seed, *self._label, f"block {self._blocks}"
            )
            self._blocks += 1
        piece, self._rest = self._rest[:count], self._rest[count:]
        return piece


def _text(seed: int, label: tuple[str, ...]) -> bytes:
    return "\x1f".join((str(seed), *label)).encode()
