"""What validation finds: one row for each quantity, with its error and what is promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

REPETITIONS = 1000

SURE = 3.0

SEED = 20261


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        part: what is examined.
        setting: on which data.
        quantity: what ``value`` is.
        value: the result.
        error: its Monte-Carlo standard error, 0 where it is not told; None for what is no rate.
        limit: what is promised; None where nothing is.
        bound: on which side of the limit the value has to be.
    """

    part: str
    setting: str
    quantity: str
    value: float
    error: float | None = None
    limit: float | None = None
    bound: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool:
        """Whether the promise is kept, as far as the repetitions can tell."""
        if self.limit is None:
            return True
        slack = SURE * (self.error or 0.0)
        if self.bound == "at most":
            return self.value <= self.limit + slack
        return self.value >= self.limit - slack


Cell = Callable[[int], Iterable[Row]]
"""Some rows of a part, from a number of repetitions and random numbers of its own, so that cells
can be computed in any order and side by side: a module's function, or a partial of one."""


def rows_of(cells: Iterable[Cell], repetitions: int) -> list[Row]:
    """The rows of cells, one cell after the other."""
    return [row for cell in cells for row in cell(repetitions)]


def generator(*key: int) -> np.random.Generator:
    """Random numbers of one part of the table, the same every time."""
    return np.random.default_rng([SEED, *key])


def rate_row(
    part: str,
    setting: str,
    quantity: str,
    hits: int,
    of: int,
    limit: float | None = None,
    bound: Literal["at most", "at least"] = "at most",
) -> Row:
    """A row for a rate, with its Monte-Carlo error.

    Args:
        part: as ``Row.part``.
        setting: as ``Row.setting``.
        quantity: as ``Row.quantity``.
        hits: how often it happened.
        of: how often it could.
        limit: as ``Row.limit``.
        bound: as ``Row.bound``.
    """
    rate = hits / of
    # The error is that at the limit: at a rate of 0 it would be 0.
    at = rate if limit is None else limit
    return Row(part, setting, quantity, rate, float(np.sqrt(at * (1 - at) / of)), limit, bound)


def format_rows(rows: Sequence[Row]) -> str:
    """The rows as a table of plain text."""
    texts = [("part", "data", "quantity", "value", "+-", "promise", "")]
    for row in rows:
        rate = row.error is not None
        texts.append(
            (
                row.part,
                row.setting,
                row.quantity,
                f"{row.value:.1%}" if rate else f"{row.value:.3g}",
                f"{row.error:.1%}" if row.error else "",
                "" if row.limit is None else f"{row.bound} {row.limit:.0%}",
                "" if row.limit is None else "holds" if row.holds else "BROKEN",
            )
        )
    widths = [max(len(line[i]) for line in texts) for i in range(7)]
    right = (3, 4)
    lines = [
        "  ".join(
            text.rjust(width) if i in right else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in texts
    ]
    return "\n".join(lines) + "\n"
