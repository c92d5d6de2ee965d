"""Bounds on effects that are too rare to occur in the sampled networks. Numbers in, numbers out."""

from __future__ import annotations

import numpy as np


def unseen_share(count: int, level: float) -> float:
    """Return the largest share of networks that ``count`` of them all miss with chance ``level``.

    A share q is missed by all of n networks with probability (1 - q)^n.
    """
    return float(-np.expm1(np.log(level) / count))
