"""A share of a network's hosts, where an experiment asks for one."""

from __future__ import annotations

from collections.abc import Sequence

from onionlab.errors import UserError


def first_of(ranked: Sequence[str], fraction: float, key: str, what: str) -> Sequence[str]:
    """Return the first hosts of a ranking: a fraction of all, rounded to whole hosts.

    key: of the experiment's file, and what: the hosts it is a share of; both for the message.
    Raises UserError where there is a share to be had and no host makes it up: runs of it would be
    those of a share of 0, under another name.
    """
    count = round(fraction * len(ranked))
    if fraction and not count:
        raise UserError(
            f"{key}: {fraction:.3g} of {len(ranked)} {what} is less than one of them",
            "make the share larger, or the network; 0 stands for none",
        )
    return ranked[:count]
