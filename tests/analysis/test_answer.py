"""The first sentences and the plots of a report, for comparisons with known effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_synthetic import known
from matplotlib.lines import Line2D
from PIL import Image

from analysis.figures import levels
from analysis.figures.effect_panels import Mark
from analysis.figures.forest import LOOKS, EffectPanel, draw, make_panel, write_forest
from analysis.figures.writing import write_drawing
from analysis.formats.study import Variant
from analysis.inference.intervals import Interval
from analysis.judgement.compared import VariantComparison
from analysis.judgement.estimates import Statistics
from analysis.judgement.judging import Design, judge_comparison
from analysis.measures.metric import Statistic
from analysis.pages.answer import answer

NETWORKS = 14
METRICS = ("ttfb_p50_s", "ttfb_p90_s", "time_to_320kib_p50_s")


def compared(
    factors: Sequence[float],
    noise: float = 0.01,
    networks: int = NETWORKS,
    rate: float | None = None,
    place: str = "",
    variant: str = "SWRR",
) -> VariantComparison:
    """Return a variant's comparison with EWMA, in the metrics METRICS and throughput.

    Args:
        factors: the variant's values relative to EWMA's, one factor for each time in METRICS. The
            first factor also applies to the throughput.
        noise: standard deviation of the noise of a value's logarithm.
        networks: number of networks.
        rate: difference of the timeout rates. If it is None, there is no timeout rate.
        place: label of the level.
        variant: label of the variant.
    """
    rng = np.random.default_rng(7)
    table: Statistics = {}

    def add(class_name: str, metric: str, factor: float, about: float = 1.0) -> None:
        base = about * np.exp(rng.normal(0, 0.3, networks))
        own = base * factor * np.exp(rng.normal(0, noise, networks))
        for who, values in (("ewma", base), ("swrr", own)):
            of = table.setdefault(("5mid", class_name), {})
            of[metric, who] = {seed: Statistic(float(v)) for seed, v in enumerate(values, 1)}

    for metric, factor in zip(METRICS, factors, strict=True):
        add("web", metric, factor)
    add("all", "goodput_bytes_per_s", factors[0], 1e6)
    if rate is not None:
        # If all differences of the rates were equal, they could not be tested. So they vary
        # slightly.
        for who, value, spread in (("ewma", 0.1, 0.0), ("swrr", 0.1 + rate, 1e-6)):
            table["5mid", "all"]["timeout_rate", who] = {
                seed: Statistic(value + 0.001 * (seed % 3) + spread * (seed % 2))
                for seed in range(1, networks + 1)
            }
    endpoints = [(c, m) for (_, c), of in table.items() for m in dict.fromkeys(m for m, _ in of)]
    endpoints.insert(0, endpoints.pop(2))
    judged = judge_comparison("5mid", table, "swrr", "ewma", Design(endpoints=endpoints))
    found = tuple(j for j in judged if j.endpoint is not None)
    return VariantComparison(place, variant, "EWMA", found, (place, variant))


def test_each_endpoint_of_each_variant_has_a_sentence() -> None:
    shown = compared([1.0, 1.0, 1.5], noise=0.005)
    none = compared([1.0, 1.0, 1.0], noise=0.4, variant="RR")
    networks, to_320_kib, to_first, p90, throughput, detectable, scope = answer([shown, none])
    assert networks == "14 networks."
    assert to_320_kib.startswith(
        "Web clients take 1.50 times as long to 320 KiB (median) under SWRR as under EWMA (95% "
        "interval 1.50 to 1.5"
    )
    of_swrr, _, of_rr = to_320_kib.partition(". Under RR ")
    assert of_swrr.endswith("; longer in 14 of 14 networks): shown")
    assert "): open, " in of_rr
    assert to_first.startswith("Web clients take 1.00 times as long to the first byte (median) ")
    assert "): the same within 5%. Under RR" in to_first
    assert " to the first byte (p90) " in p90
    assert throughput.startswith("The throughput is 1.00 times as high under SWRR as under EWMA (")
    assert detectable.startswith("With this many networks, a change of 1.0")
    assert (
        "the time to 320 KiB of web clients (median) is shown with a chance of 80%." in detectable
    )
    assert scope.startswith('The chance of a false "shown" is 5% for each of the 2 comparisons')
    assert "may reach 10%" in scope
    assert "is 6.5% for each" in answer([shown, none], error_level=0.065)[-1]
    assert "for each" not in answer([shown, none], error_level=None)[-1]


def test_few_networks_are_a_pilot() -> None:
    assert answer([compared([1.0, 1.0, 1.5], networks=3)])[0] == "Pilot, 3 networks."
    one, endpoint, *_ = answer([compared([1.0, 1.0, 2.0], networks=1)])
    assert one.startswith("Pilot, 1 network: ")
    assert "NETWORKS=5" in one
    assert endpoint.startswith(
        "Web clients take 1.98 times as long to 320 KiB (median) under SWRR as "
    )
    assert endpoint.endswith(" under EWMA: open, one pair: no spread to judge by.")


def test_a_suggestion_has_the_number_of_further_networks() -> None:
    sentences = answer([compared([1.0, 1.0, 1.12], noise=0.03, networks=4)])
    assert "): suggested, about " in sentences[1]
    assert sentences[1].endswith(" would lead to an answer.")


def test_a_rate_is_a_difference_in_points_with_its_exposure() -> None:
    sentences = answer([compared([1.0, 1.0, 1.0], noise=0.005, rate=0.3)])
    assert sentences[5].startswith(
        "The timeout rate is 30.0 points higher under SWRR than under EWMA (95% interval +30.0 "
    )
    assert (
        "; higher in 14 of 14 networks): shown. Harm to up to 19% of networks may have"
        in sentences[5]
    )


def test_a_grade_has_its_caution() -> None:
    one = compared((1.6, 1.0, 1.6), noise=0.001)
    careful = [
        replace(j, verdict=replace(j.verdict, caution="a few networks are outliers"))
        for j in one.judgements
    ]
    sentences = " ".join(answer([replace(one, judgements=tuple(careful))]))
    assert "shown; a few networks are outliers." in sentences
    assert "the same within 5%; a few networks are outliers." in sentences


def test_each_level_has_its_own_sentences() -> None:
    sentences = answer([compared([1.0, 1.0, 2.0], place=f"{n} middles") for n in (5, 10)])
    levels_of = [one.partition(":")[0] for one in sentences[1:9]]
    assert levels_of == ["5 middles"] * 4 + ["10 middles"] * 4


def test_nothing_to_answer() -> None:
    assert answer([]) == []
    assert answer([VariantComparison("", "SWRR", "EWMA", ())]) == []


FAR_OFF = compared([1.0, 1.5, 30.0], noise=0.005, rate=0.02, place="5 middles")
UNCLEAR = compared([1.0, 1.0, 1.0], noise=0.4, networks=4, rate=0.0, place="10 middles")


def test_the_plot_has_a_line_for_each_metric_and_repeats(tmp_path: Path) -> None:
    shown = [FAR_OFF, UNCLEAR]
    first, again = (known(write_forest(shown, tmp_path / name)) for name in ("one", "two"))
    assert first.svg == again.svg
    assert first.caption.startswith("Endpoints against EWMA, with ")
    assert first.path("pdf").read_bytes() == again.path("pdf").read_bytes()
    lines = first.path("csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 5
    figure = draw([make_panel(one) for one in shown])
    labels = {text.get_text() for axes in figure.axes for text in axes.get_yticklabels()}
    assert "Time to 320 KiB, median (web)" in labels
    assert "Timeout rate" in labels
    # Estimates outside the axis are drawn at its end.
    assert all(abs(x) <= axes.get_xlim()[1] + 1e-9
               for axes in figure.axes for line in axes.lines
               for x in np.asarray(line.get_xdata(), dtype=float))  # fmt: skip


def test_long_labels_are_not_cut(tmp_path: Path) -> None:
    effect = Interval(1.1, 0.9, 1.3)
    labels = [f"Time to last byte of {n} MiB, median (perf-onion)" for n in (1, 5)]
    marks: Any = {("ratio", label): Mark(effect, "ratio", 1.05, LOOKS["open"]) for label in labels}
    panels = [EffectPanel(title, "EWMA", marks) for title in ("RR", "SWRR linear")]
    drawn = write_drawing(lambda: draw(panels), tmp_path / "plot", "", "", None)
    with Image.open(drawn.path("png")) as image:
        is_dark = np.asarray(image.convert("L")) < 250
    assert is_dark.any()
    assert not any(
        edge.any() for edge in (is_dark[:, :2], is_dark[:, -2:], is_dark[:2], is_dark[-2:])
    )


LOOKS_OF = {
    name: Variant(name=name, label=name, color=color, marker="D", linestyle="-")
    for name, color in (("SWRR", "#4477aa"), ("RR", "#882255"))
}


def test_levels_are_rows_and_metrics_are_panels(tmp_path: Path) -> None:
    other = compared([1.0, 1.0, 2.0], noise=0.005, rate=0.02, place="5 middles", variant="RR")
    shown = [FAR_OFF, other, UNCLEAR]
    first = known(levels.write_levels(shown, LOOKS_OF, tmp_path / "one"))
    # This plot omits tail quantiles of times, so each comparison has four of its five metrics. The
    # plot of all endpoints shows the tail quantiles.
    assert len(first.path("csv").read_text().splitlines()) == 1 + 3 * 4
    figure = levels.draw(shown, LOOKS_OF)
    panels = {" ".join(axes.get_title(loc="left").split()): axes for axes in figure.axes}
    titles = ["Time to first byte, median (web)", "Time to 320 KiB, median (web)", "Throughput"]
    assert {*titles, "Timeout rate"} <= set(panels)
    times = panels["Time to 320 KiB, median (web)"]
    first_panel = figure.axes[0]
    assert [t.get_text() for t in first_panel.get_yticklabels()] == ["5 middles", "10 middles"]
    marks = {round(_at(line, 1), 2): line for line in times.lines if line.get_marker() == "D"}
    # Two variants share the row of the first level. The first variant is drawn above the second.
    assert list(marks) == [-0.17, 0.17, 0.83]
    assert _at(marks[0.17], 0) == pytest.approx(np.log(2), rel=1e-2)
    # A filled marker means that a difference was shown.
    assert marks[0.17].get_markerfacecolor() == "#882255"
    assert marks[0.83].get_markerfacecolor() == "white"
    # Estimates outside the axis are drawn at its end.
    assert _at(marks[-0.17], 0) == pytest.approx(times.get_xlim()[1])


def _at(line: Line2D, axis: int) -> float:
    """Return the coordinate of a mark on an axis (0: x, 1: y)."""
    return float(np.asarray(line.get_xydata(), dtype=float)[0, axis])


def test_one_level_or_one_network_gives_no_plot_of_levels(tmp_path: Path) -> None:
    one = [compared([1.0, 1.5, 2.0], place="5 middles")]
    assert levels.write_levels(one, LOOKS_OF, tmp_path / "none") is None
    two = [compared([1.0, 1.5, 2.0], networks=1, place=f"{n} middles") for n in (5, 10)]
    assert levels.write_levels(two, LOOKS_OF, tmp_path / "none") is None
    assert write_forest([], tmp_path / "none") is None
    assert list(tmp_path.iterdir()) == []
