"""What may befall few networks, and so go unseen. Numbers in, numbers out.

Where harm befalls a share q of networks, none of n networks shows it with probability (1 - q)^n:
all zeros in three seeds say next to nothing of a harm to one network in ten.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaincc


def p_rare(mean: float, margin: float, largest: float, count: int) -> float:
    """p-value of "the mean over networks is at least ``margin``" where few make all of it.

    The bound of Clopper and Pearson (1934, Biometrika 26) for a share, with the mean as if each
    network were either off by ``largest`` or not at all: of all values between the two, those make
    a mean the least certain.

    Args:
        mean: over the networks that were seen; its size counts.
        margin: > 0, in the same unit.
        largest: by how much one network may be off, > 0, likewise.
        count: networks that were seen.
    """
    harmed = count * abs(mean) / largest
    if largest <= margin:
        return 0.0 if abs(mean) < margin else 1.0
    return float(betaincc(harmed + 1, count - harmed, margin / largest)) if harmed < count else 1.0


def unseen_share(count: int, level: float) -> float:
    """The largest share of networks that ``count`` of them all miss with the chance ``level``."""
    return float(-np.expm1(np.log(level) / count))
