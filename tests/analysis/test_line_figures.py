"""Lines that lie on each other, panels with nothing in them, bands that would rule the scale."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from analysis_synthetic import study_content
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.figure_data import FigureData
from analysis.figures.lines import draw_lines, lines_csv
from analysis.figures.panels import LINE_FIGURES
from analysis.figures.style import COLUMN, RC, TEXT, Page
from analysis.formats.study import Study

STUDY = Study.model_validate(study_content([1, 2, 3]))
KIND = LINE_FIGURES["throughput-timeouts"]
GRID = KIND.panels[0].grid(STUDY.levels[0])


def data_of(
    throughput: dict[str, list[float]], timeouts: dict[str, list[float]], baseline: str = "ewma"
) -> FigureData:
    """Constant throughput (B/s) and number of timeouts of each variant's seeds."""
    data = FigureData(STUDY.figures[0], STUDY.levels[0], baseline)
    for variant, values in throughput.items():
        data.seeds[variant] = list(range(1, len(values) + 1))
        data.runs[variant] = [
            [np.full(GRID.shape, value), np.full(GRID.shape, count)]
            for value, count in zip(values, timeouts[variant], strict=True)
        ]
    return data


def drawn(data: FigureData, page: Page = TEXT) -> Figure:
    settings: Any = RC
    with mpl.rc_context(settings):
        return draw_lines(data, STUDY, page)


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


SEEDS = [1e6, 2e6, 6e6]
ALIKE = {"ewma": SEEDS, "rr": [value + 1e4 for value in SEEDS]}
NONE = {"ewma": [0.0] * 3, "rr": [0.0] * 3}


def test_differences_are_those_of_runs_of_one_seed() -> None:
    data = data_of(ALIKE, NONE)
    line = data.differences(0)["rr"]
    # The seeds are far apart, the pairs are not: no mean over seeds shows that.
    assert np.allclose([line.mean[0], line.low[0], line.high[0]], 1e4)
    assert set(data.differences(0)) == {"rr"}
    rows = [row.split(",") for row in lines_csv(data, STUDY).splitlines()]
    found = {row[3] for row in rows if row[0] == "throughput_bytes_per_s_difference"}
    assert found == {"10000"}


def test_a_seed_that_only_one_side_has_makes_no_pair() -> None:
    data = data_of({"ewma": [1e6, 2e6], "rr": [1e6, 3e6, 9e6]}, {"ewma": [0, 0], "rr": [0, 0, 0]})
    assert data.differences(0)["rr"].seeds == 2


@pytest.mark.parametrize(("page", "rows"), [(TEXT, 2), (COLUMN, 4)])
def test_below_each_panel_stand_its_differences(page: Page, rows: int) -> None:
    figure = drawn(data_of(ALIKE, NONE), page)
    assert len(figure.axes) == 4
    assert figure.axes[0].get_subplotspec().get_gridspec().nrows == rows  # type: ignore[union-attr]
    above, below = figure.axes[0], figure.axes[1 if page.stacked else 2]
    assert below.get_title() == "less that of EWMA"
    assert above.get_xlim() == below.get_xlim()
    # Most of the panel's height is the difference's own, not that of the seeds.
    assert 0.01 <= below.get_ylim()[1] < 0.1


def test_without_a_baseline_or_a_pair_there_are_none() -> None:
    assert len(drawn(data_of(ALIKE, NONE, baseline="swrr")).axes) == 2
    assert len(drawn(data_of({"ewma": SEEDS}, {"ewma": [0.0] * 3})).axes) == 2


def test_a_panel_without_timeouts_says_so() -> None:
    figure = drawn(data_of(ALIKE, NONE))
    by_title = {axes.get_title(): axes for axes in figure.axes}
    assert texts(by_title["Download timeouts"]) == ["no timeouts"]
    assert len(by_title["Download timeouts"].get_yticks()) == 0
    # Of the differences the lines lie in the middle of the panel, and no word on them.
    (below,) = [
        text for axes in figure.axes for text in axes.texts if axes.get_title()[:4] == "less"
    ]
    assert (below.get_text(), below.get_position()) == ("no timeouts", (0.5, 0.75))
    some = drawn(data_of(ALIKE, {**NONE, "rr": [0.0, 0.0, 1.0]}))
    by_title = {axes.get_title(): axes for axes in some.axes}
    assert texts(by_title["Download timeouts"]) == []


def test_a_band_that_would_rule_the_scale_is_cut_and_said_to_be() -> None:
    one_far_off = {**NONE, "ewma": [0.0, 0.0, 300.0], "rr": [0.0, 1.0, 2.0]}
    figure = drawn(data_of(ALIKE, one_far_off))
    axes = {axes.get_title(): axes for axes in figure.axes}["Download timeouts"]
    assert texts(axes) == ["bands cut"]
    assert axes.get_ylim()[1] == pytest.approx(200.0)
    usual = drawn(data_of(ALIKE, {"ewma": [3.0, 4.0, 5.0], "rr": [3.0, 4.0, 5.0]}))
    axes = {axes.get_title(): axes for axes in usual.axes}["Download timeouts"]
    assert texts(axes) == []


def test_a_level_at_another_scale_is_called_so() -> None:
    level, figure = STUDY.levels[0], STUDY.figures[0]
    assert STUDY.label(level) == "5 middles at scale 0.1"
    assert STUDY.figure_title(figure) == "Throughput and timeouts, 5 middles at scale 0.1"
    named = figure.model_copy(update={"title": "With 5 middles"})
    assert STUDY.figure_title(named) == "With 5 middles at scale 0.1"
    full = STUDY.model_copy(update={"asked": {"scale": 1.0}})
    assert full.label(level) == "5 middles"
    assert full.figure_title(figure) == "Throughput and timeouts, 5 middles"
