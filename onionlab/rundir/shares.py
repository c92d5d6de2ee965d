"""Select a share of a network's hosts."""

from __future__ import annotations

from collections.abc import Sequence

from onionlab.errors import UserError


def select_share(ranked: Sequence[str], fraction: float, key: str, what: str) -> Sequence[str]:
    """Return the first hosts of a ranking: a fraction of all, rounded to whole hosts.

    key: the key in the experiment's file; what: the kind of hosts; both are used in the message.
    Raises UserError if a positive fraction selects no host: such runs would be runs
    with the fraction 0 under another name.
    """
    count = round(fraction * len(ranked))
    if fraction and not count:
        raise UserError(
            f"{key}: {fraction:.3g} of {len(ranked)} {what} is less than one",
            "increase the share or the network's size, or use 0 for none",
        )
    return ranked[:count]
