"""Figures with a line per variant: values, scales, and texts in the drawing."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from analysis_synthetic import study_content
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.catalogue import FIGURES, open_figure
from analysis.figures.curves import difference_lines, mean_lines, ratio_lines
from analysis.figures.kind import FigureData, RunSample
from analysis.figures.style import COLUMN, RC, TEXT, Page, line_style
from analysis.figures.writing import write_drawing
from analysis.formats.csv_tables import csv_text
from analysis.formats.study import Study

STUDY = Study.model_validate(study_content([1, 2, 3]))


def make_figure(
    runs: Sequence[tuple[str, int, Sequence[Any]]], study: Study = STUDY, figure: int = 0
) -> FigureData:
    """Return a figure of runs, each given as (variant, seed, values of each panel)."""
    data = open_figure(study.figures[figure], study)
    data.samples = [RunSample(data.level, *run) for run in runs]
    return data


def make_data(
    throughput: dict[str, list[float]], timeouts: dict[str, list[float]], baseline: str = "ewma"
) -> FigureData:
    """Return a figure of constant throughput (B/s) and constant numbers of timeouts.

    Both are given as variant -> value on each network.
    """
    study = STUDY.model_copy(update={"baseline": baseline})
    size = LINES.panels[0].grid(STUDY.levels[0]).shape
    return make_figure(
        [
            (variant, seed, [np.full(size, value), np.full(size, count)])
            for variant, values in throughput.items()
            for seed, (value, count) in enumerate(zip(values, timeouts[variant], strict=False), 1)
        ],
        study,
    )


LINES: Any = FIGURES["throughput-timeouts"]


def draw_figure(data: FigureData, page: Page = TEXT) -> Figure:
    settings: Any = RC
    with mpl.rc_context(settings):
        return data.kind.draw(data, page)


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def timeouts_of(figure: Figure) -> Axes:
    (axes,) = (axes for axes in figure.axes if axes.get_title() == "Download timeouts")
    return axes


SEEDS = [1e6, 2e6, 6e6]
ALIKE = {"ewma": SEEDS, "rr": [value + 1e4 for value in SEEDS]}
NONE = {"ewma": [0.0] * 3, "rr": [0.0] * 3}


def test_bands_are_the_range_over_networks() -> None:
    runs: list[Any] = [
        ("ewma", 1, [np.array([1.0, 5.0, np.nan])]),
        ("ewma", 2, [np.array([3.0, 1.0, 2.0])]),
    ]
    line = mean_lines(make_figure(runs), 0)["ewma"]
    assert line.mean[:2].tolist() == [2.0, 3.0]
    assert (line.low[:2].tolist(), line.high[:2].tolist()) == ([1.0, 1.0], [3.0, 5.0])
    assert np.isnan([line.mean[2], line.low[2], line.high[2]]).all()
    # A network's curve is the mean of its repeats.
    runs.append(("ewma", 2, [np.array([5.0, 3.0, 2.0])]))
    repeated = mean_lines(make_figure(runs), 0)["ewma"]
    assert (repeated.mean[:2].tolist(), repeated.high[:2].tolist()) == ([2.5, 3.5], [4.0, 5.0])
    assert repeated.count == line.count == 2


def test_ratios_are_of_pairs_only() -> None:
    (number,) = (n for n, spec in enumerate(STUDY.figures) if spec.kind == "quantile-ratios")
    ones = np.array([1.0, 2.0])
    runs: list[Any] = [("ewma", 1, [ones]), ("ewma", 2, [5 * ones]), ("rr", 2, [10 * ones])]
    (line,) = ratio_lines(make_figure(runs, figure=number), 0).values()
    assert (line.mean.tolist(), line.count) == (pytest.approx([2.0, 2.0]), 1)
    runs[2] = ("rr", 3, [10 * ones])
    assert ratio_lines(make_figure(runs, figure=number), 0) == {}


def test_differences_are_between_runs_on_the_same_network() -> None:
    data = make_data(ALIKE, NONE)
    (line,) = difference_lines(data, 0).values()
    # Values vary widely between networks, but the difference of each pair is 1e4. So the range of
    # the differences is this single value.
    assert np.allclose([line.mean[0], line.low[0], line.high[0]], 1e4)
    rows = csv.DictReader(io.StringIO(csv_text(data.kind.table(data))))
    found = {r["mean"] for r in rows if r["panel"] == "throughput_bytes_per_s_difference"}
    assert found == {"10000"}
    one_more = make_data({"ewma": [1e6, 2e6], "rr": SEEDS}, NONE)
    assert difference_lines(one_more, 0)["rr"].count == 2


@pytest.mark.parametrize(("page", "rows"), [(TEXT, 2), (COLUMN, 4)])
def test_differences_are_below_each_panel(page: Page, rows: int) -> None:
    figure = draw_figure(make_data(ALIKE, NONE), page)
    assert len(figure.axes) == 4
    assert figure.axes[0].get_subplotspec().get_gridspec().nrows == rows  # type: ignore[union-attr]
    above, below = figure.axes[0], figure.axes[1 if page.stacked else 2]
    assert below.get_title() == "difference from EWMA"
    assert above.get_xlim() == below.get_xlim()
    # The axis is scaled to the difference, not to the spread between networks.
    assert 0.01 <= below.get_ylim()[1] < 0.1


def test_without_a_pair_there_are_no_differences() -> None:
    assert len(draw_figure(make_data(ALIKE, NONE, baseline="swrr")).axes) == 2
    assert len(draw_figure(make_data({"ewma": SEEDS}, {"ewma": [0.0] * 3})).axes) == 2


def test_a_panel_without_timeouts_has_a_text() -> None:
    figure = draw_figure(make_data(ALIKE, NONE))
    assert texts(timeouts_of(figure)) == ["no timeouts"]
    assert len(timeouts_of(figure).get_yticks()) == 0
    # The lines of differences are in the middle of their panel, so the text is above the middle.
    (below,) = [text for a in figure.axes for text in a.texts if "difference" in a.get_title()]
    assert (below.get_text(), below.get_position()) == ("no timeouts", (0.5, 0.75))
    some = draw_figure(make_data(ALIKE, {**NONE, "rr": [0.0, 0.0, 1.0]}))
    assert texts(timeouts_of(some)) == []


def test_a_wide_band_is_cut_with_a_note() -> None:
    one_far_off = {**NONE, "ewma": [0.0, 0.0, 300.0], "rr": [0.0, 1.0, 2.0]}
    figure = draw_figure(make_data(ALIKE, one_far_off))
    axes = timeouts_of(figure)
    assert texts(axes) == ["bands cut"]
    assert axes.get_ylim()[1] == pytest.approx(200.0)
    usual = draw_figure(make_data(ALIKE, {"ewma": [3.0, 4.0, 5.0], "rr": [3.0, 4.0, 5.0]}))
    assert texts(timeouts_of(usual)) == []


def labelled(*labels: str) -> FigureData:
    """Return a figure of one run of each variant. labels: the labels of the first variants."""
    content = study_content([1])
    for variant, label in zip(content["variants"], labels, strict=False):
        variant["label"] = label
    study = Study.model_validate(content)
    ones = np.ones_like(LINES.panels[0].grid(study.levels[0]))
    return make_figure([(variant.name, 1, [ones, ones]) for variant in study.variants], study)


@pytest.mark.parametrize(("page", "columns"), [(TEXT, 3), (COLUMN, 2)])
def test_a_legend_is_never_wider_than_its_page(page: Page, columns: int) -> None:
    figure = draw_figure(labelled(*["SWRR proportional"] * 3), page)
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
    assert legend._ncols == columns  # type: ignore[attr-defined]
    assert len(legend.get_texts()) == 3
    tops = [axes.get_position().y0 for axes in figure.axes]
    assert (tops[0] > tops[1]) == page.stacked


@pytest.mark.parametrize("label", ["$x^$", "_EWMA", "<b> | \\$"])
def test_a_label_is_shown_letter_for_letter(label: str) -> None:
    figure = draw_figure(labelled(label))
    (legend,) = figure.legends
    first, *others = legend.get_texts()
    assert len(others) == 2
    shown, formula = first._preprocess_math(first.get_text())  # type: ignore[attr-defined]
    assert (shown.removeprefix("\N{ZERO WIDTH SPACE}"), formula) == (label, False)
    figure.draw_without_rendering()


def test_a_line_without_values_is_drawn(tmp_path: Path) -> None:
    def draw() -> Figure:
        figure = Figure()
        figure.subplots().plot([1.0, 2.0], [np.nan, np.nan], **line_style(STUDY.variants[0]))
        return figure

    written = write_drawing(draw, tmp_path / "empty", "heading", "caption", None)
    assert written.path("pdf").is_file()
