"""The validation of the statistics by simulation accepts the methods, and detects wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
import validate_statistics
from validate_statistics import SHAPES, compute_rows, main, make_parts

from analysis.inference.effects import Effect, paired_effect

FEW = 200
"""Number of simulated families of endpoints. It is sufficient to distinguish corrected and
uncorrected error rates."""


def is_valid(part: str, cell: int) -> bool:
    return all(row.holds for row in compute_rows(make_parts([5])[part][cell], FEW))


def narrow_effect(x: np.ndarray, step: float = 0.0) -> Effect:
    return paired_effect(0.5 * x + 0.5 * x.mean(), step)


UNCORRECTED = {"inference.effects.shape_corrected_p": lambda p, *_, **__: p}
ONE_LOOK = {"judgement.verdicts.sequential_p": lambda p, looks: min(p)}


@pytest.mark.parametrize(
    ("part", "cell", "changes"),
    [
        ("family", 2, {"judgement.verdicts.adjusted": lambda p, weights: np.multiply(p, weights)}),
        ("family", 2, UNCORRECTED),
        ("rates", 0, {"inference.effects.Effect.p_equivalent": lambda *_: 0.0}),
        ("auto", 2, UNCORRECTED | ONE_LOOK),
        ("nights", 2, {"judgement.verdicts.adjusted": lambda p, weights: np.asarray(p) / 4}),
    ],
)
def test_a_wrong_method_breaks_a_promise(
    part: str, cell: int, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_valid(part, cell)
    for name, wrong in changes.items():
        monkeypatch.setattr(f"analysis.{name}", wrong)
    assert not is_valid(part, cell)


def test_an_interval_that_is_too_narrow_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate_statistics, "paired_effect", narrow_effect)
    broken = [row for row in compute_rows(make_parts([8])["family"][0], FEW) if not row.holds]
    assert [row.quantity for row in broken] == ["coverage of the interval"]


def test_the_rows_are_printed_and_repeat(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--part", "mixed", "--families", "40", "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # A process of the pool has the same random numbers as this one.
    rows = compute_rows(make_parts()["mixed"][0], 40)
    assert lines == [*(f"mixed     {row}" for row in rows), "all promises hold"]
    assert "half A/A, half at the margin, 10 networks" in lines[0]
    assert lines[0].endswith("at most 0.05: holds")


def test_the_pseudomedian_of_a_distribution() -> None:
    # The sum of two exponential values has a gamma distribution with shape 2. Half of its median is
    # the pseudomedian of the exponential distribution.
    assert SHAPES["exponential"].pseudomedian == pytest.approx(0.8391735, abs=1e-4)
    assert SHAPES["normal"].pseudomedian == pytest.approx(0.0, abs=1e-4)
    assert SHAPES["normal"].spread == pytest.approx(1.0)
