"""All simulated parts, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.errors import AnalysisError
from analysis.judgement.validation.coverage import bands, coverage
from analysis.judgement.validation.error_rates import false_verdicts, power, repeated_looks
from analysis.judgement.validation.looking_again import looking_again
from analysis.judgement.validation.rates import rates
from analysis.judgement.validation.rows import REPETITIONS, Row
from analysis.judgement.validation.seeds_saved import seeds_saved
from analysis.judgement.validation.sequential_methods import methods
from analysis.judgement.validation.shapes import shapes

MIN_REPETITIONS = 1000


def validate(repetitions: int = REPETITIONS) -> Iterator[Row]:
    """All parts, one row after the other. The same repetitions give the same rows.

    Raises:
        AnalysisError: fewer repetitions than a rate of 5 % needs.
    """
    if repetitions < MIN_REPETITIONS:
        raise AnalysisError(
            f"{repetitions} repetitions cannot tell 5% from 8%",
            f"ask for at least {MIN_REPETITIONS}",
        )
    parts = (
        coverage, shapes, bands, false_verdicts, rates, repeated_looks, looking_again, methods,
        power, seeds_saved,
    )  # fmt: skip
    for part in parts:
        yield from part(repetitions)
