"""All simulated parts, side by side on the CPUs there are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from analysis.errors import AnalysisError
from analysis.judgement.validation.coverage import bands, coverage
from analysis.judgement.validation.error_rates import false_grades, nights, repeated_looks
from analysis.judgement.validation.looking_again import looking_again
from analysis.judgement.validation.rates import rates
from analysis.judgement.validation.rows import REPETITIONS, Cell, Row
from analysis.judgement.validation.seeds_saved import seeds_saved
from analysis.judgement.validation.sequential_methods import methods
from analysis.judgement.validation.shapes import shapes

MIN_REPETITIONS = 1000

PARTS = (
    coverage, shapes, bands, false_grades, rates, repeated_looks, nights, looking_again, methods,
    seeds_saved,
)  # fmt: skip


def validate(
    repetitions: int = REPETITIONS,
    processes: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, cells: None,
) -> list[Row]:
    """All parts. The same repetitions give the same rows, on however many processes.

    Args:
        repetitions: of each simulated experiment; some, which take long, make a part of them.
        processes: that work side by side.
        on_progress: is told how many cells of how many are done.

    Raises:
        AnalysisError: fewer repetitions than a rate of 5 % needs.
    """
    if repetitions < MIN_REPETITIONS:
        raise AnalysisError(
            f"{repetitions} repetitions cannot tell 5% from 8%",
            f"ask for at least {MIN_REPETITIONS}",
        )
    cells = [cell for part in PARTS for cell in part()]
    rows: list[Row] = []
    # Not forked: this process may have threads.
    with ProcessPoolExecutor(min(processes, len(cells)), get_context("spawn")) as pool:
        for done, of_cell in enumerate(pool.map(_rows, cells, repeat(repetitions)), 1):
            rows += of_cell
            on_progress(done, len(cells))
    return rows


def _rows(cell: Cell, repetitions: int) -> list[Row]:
    return list(cell(repetitions))
