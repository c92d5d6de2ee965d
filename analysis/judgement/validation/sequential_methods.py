"""Methods for repeated looks beside each other, on one sequence of differences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import stdtr

from analysis.arrays import Floats, Ints
from analysis.formats.study import Looks
from analysis.inference.sequential import ALLOWANCE, nominal_levels, schedule
from analysis.judgement.validation.rows import Cell, Row, generator, rate_row
from analysis.judgement.validation.simulated_runs import ENDPOINTS
from analysis.judgement.verdicts import LEVEL

METHOD_BUDGET = 40

METHOD_LEVEL = LEVEL / ENDPOINTS


def methods() -> Iterator[Cell]:
    """Sequential methods beside each other; cheap, so all in one cell."""
    yield _methods


def _methods(repetitions: int) -> Iterator[Row]:
    """Sequential methods on one sequence of normal differences: error, power, mean seeds.

    Group-sequential t tests that spend their error as t^1, t^2, t^3, and an anytime-valid test, the
    mixture of t statistics over effects N(0, 1) in units of their sd (Wang and Ramdas,
    arXiv:2310.03722). Cheap, so each rate is over twenty times the repetitions.
    """
    times = 20 * repetitions
    sizes = np.array(schedule(METHOD_BUDGET))
    fractions = Looks(tuple(sizes), METHOD_BUDGET).fractions
    for share in (1.0, ALLOWANCE):
        above = _t_paths(generator(7, 0), times, 0.0, sizes)[0]
        levels = nominal_levels(fractions, [share * LEVEL / 2])[0]
        hits = int(np.sum(np.any((above <= levels) | (1 - above <= levels), axis=1)))
        setting = f"one A/A series, {sizes.size} looks at 3 to {METHOD_BUDGET} seeds"
        quantity = f"false 'different', {share:.0%} of alpha spent"
        yield rate_row("methods", setting, quantity, hits, times,
                    LEVEL if share == ALLOWANCE else None)  # fmt: skip
    for i, effect in enumerate((0.5, 1.0, 2.0)):
        above, t = _t_paths(generator(7, 1 + i), times, effect, sizes)
        rejected = {
            f"spending t^{exponent:g}": above
            <= nominal_levels(fractions, [ALLOWANCE * METHOD_LEVEL / 2], exponent)[0]
            for exponent in (1.0, 2.0, 3.0)
        }
        rejected["anytime-valid mixture"] = _mixture(t, sizes) >= 1 / METHOD_LEVEL
        rejected["only all seeds at once"] = (above <= METHOD_LEVEL / 2) & (sizes == METHOD_BUDGET)
        for name, at_look in rejected.items():
            found = at_look.any(axis=1)
            used = np.where(found, sizes[at_look.argmax(axis=1)], METHOD_BUDGET)
            setting = f"effect {effect:g} sd, level {METHOD_LEVEL:.2%}, {METHOD_BUDGET} seeds"
            yield Row("methods", setting, f"power, {name}", float(found.mean()), 0.0)
            yield Row("methods", setting, f"mean seeds, {name}", float(used.mean()))


def _t_paths(
    rng: np.random.Generator, times: int, effect: float, sizes: Ints
) -> tuple[Floats, Floats]:
    """One-sided p-values and t statistics at each look, each of shape (times, looks)."""
    values = rng.normal(effect, 1.0, (times, int(sizes[-1])))
    mean = values.cumsum(axis=1)[:, sizes - 1] / sizes
    square = (values**2).cumsum(axis=1)[:, sizes - 1]
    sd = np.sqrt((square - sizes * mean**2) / (sizes - 1))
    t: Floats = mean / sd * np.sqrt(sizes)
    return np.asarray(stdtr(sizes - 1, -t), dtype=np.float64), t


def _mixture(t: Floats, sizes: Ints) -> Floats:
    """The e-process of the t test: effects N(0, 1) in units of sd, sd with the Haar prior."""
    squared = t**2 / (sizes - 1)
    evidence: Floats = np.sqrt(1 / (sizes + 1)) * ((1 + squared) / (1 + squared / (sizes + 1))) ** (
        sizes / 2
    )
    return evidence
