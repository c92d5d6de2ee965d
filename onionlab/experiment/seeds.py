"""SEEDS: which repetitions an experiment has."""

from __future__ import annotations

import re

from onionlab.errors import UserError
from onionlab.experiment import values
from onionlab.yamlfile.units import show

SEEDS = values.seeds()


def parse_seeds(text: str) -> int | list[int]:
    """SEEDS as given on a command line: a number of seeds ("3") or a list of them ("1,2,7").

    Raises:
        UserError: neither of them.
    """
    if re.fullmatch(r"[0-9]{1,10}(, ?[0-9]{1,10})*,?", text.strip(), re.ASCII) is None:
        raise UserError(
            f"SEEDS: expected a number of seeds or a list such as 1,2,7, got {show(text)}",
            "`make experiment` takes SEEDS=auto too" if text == "auto" else None,
        )
    numbers = [int(part) for part in text.split(",") if part.strip()]
    seeds = numbers if "," in text else numbers[0]
    checked_seeds(seeds)
    return seeds


def checked_seeds(seeds: object) -> tuple[int, ...]:
    """All seeds that a number of them, or a list, stands for. Raises UserError."""
    try:
        return SEEDS.parse(seeds)  # type: ignore[no-any-return]
    except ValueError as error:
        raise UserError(f"SEEDS: {error}") from None
