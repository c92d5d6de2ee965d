"""Figures in tornettools' form."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_synthetic import VARIANTS, known, make_level, read_rows, study_content
from hypothesis import given
from hypothesis import strategies as st
from suite_figures import only_svg
from tornet_synthetic import write_tornet_run

from analysis.errors import AnalysisError
from analysis.figures.catalogue import open_figure
from analysis.figures.style import COLUMN, TEXT, Page
from analysis.figures.tornettools import TORNET_FIGURES
from analysis.figures.writing import WrittenFigure, write_figure
from analysis.formats import files
from analysis.formats.study import FigureSpec, Study, write_study
from analysis.imports.tor_metrics import read_tor_metrics
from analysis.inference.bands import lower_quantiles, mean_quantiles
from analysis.inference.intervals import t_interval, t_quantile
from analysis.measures.run_data import load_run
from analysis.pages.report import build
from analysis.records.extract import extract


@given(st.lists(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), min_size=2, max_size=5))
def test_bands_are_t_intervals_of_each_quantile(samples: list[list[float]]) -> None:
    shares = np.array([0.0, 0.5, 0.9, 1.0])
    found = known(mean_quantiles([[np.array(one)] for one in samples], shares))
    for place, share in enumerate(shares):
        values = [sorted(one)[int((len(one) - 1) * share)] for one in samples]
        expected = t_interval(values)
        assert found.mean[place] == pytest.approx(expected.estimate)
        assert found.low[place] == pytest.approx(max(0.0, known(expected.low)), abs=1e-6)
        assert found.high[place] == pytest.approx(known(expected.high))


def test_a_resolution_widens_the_band() -> None:
    """The band's half width is t(n - 1) sqrt((var + sum of resolutions^2 / 12 / (n - 1)) / n).

    Here t(n - 1) is a quantile of Student's t, var is the sample variance, and n = 2.
    """
    pairs = np.array([[10.0, 6.0], [20.0, 3.0]])
    found = known(mean_quantiles([[pairs[:1]], [pairs[1:]]], np.array([0.5])))
    half = t_quantile(0.975, 1.0) * math.sqrt(25.0 + (36.0 + 9.0) / 12 / 2)
    assert found.mean.tolist() == [15.0]
    assert found.high[0] == pytest.approx(15.0 + half)
    # The rows are (value, resolution). A quantile is returned with the resolution of its value.
    three = np.array([[2.0, 7.0], [1.0, 5.0], [3.0, 9.0]])
    assert lower_quantiles(three, np.array([0.0, 0.5, 1.0]))[:, 1].tolist() == [5.0, 7.0, 9.0]


def test_a_simulation_without_a_value_is_left_out_and_one_has_no_band() -> None:
    shares = np.array([0.5])
    one = known(mean_quantiles([[np.array([1.0, 2.0, 9.0])], [np.empty(0)]], shares))
    assert (one.count, one.mean.tolist()) == (1, [2.0])
    assert np.isnan(one.low).all()
    assert mean_quantiles([[np.empty(0)]], shares) is None
    assert lower_quantiles([3.0, 1.0], np.array([0.99])).tolist() == [1.0]


def metrics_file(folder: Path) -> Path:
    """Write a small tor_metrics file: invented measurements of the public Tor."""
    rng = np.random.default_rng(7)
    path = folder / "tor_metrics_2026-01-01--2026-01-31.json"
    content = {
        "circuit_rtt": rng.lognormal(-1.0, 0.6, 400).tolist(),
        "circuit_build_times": rng.lognormal(-0.5, 0.5, 400).tolist(),
        "client_goodput": (1e6 * rng.lognormal(1.0, 0.5, 200)).tolist(),
        "client_goodput_5MiB": (1e6 * rng.lognormal(1.5, 0.5, 200)).tolist(),
        "download_times": {
            size: rng.lognormal(center, 0.5, 300).tolist()
            for size, center in (("ALL", 0.5), ("51200", -0.3), ("1048576", 1.0), ("5242880", 2.4))
        },
        "daily_counts": {
            "2026-01-01": {"requests": 200, "timeouts": 2, "failures": 4},
            "2026-01-02": {"requests": 0, "timeouts": 0, "failures": 0},
        },
        "relay_goodput": {"2026-01-01": 250.0, "2026-01-02": 260.0},
    }
    path.write_text(json.dumps(content))
    return path


def test_measurements_of_the_public_tor_are_read(tmp_path: Path) -> None:
    path = metrics_file(tmp_path)
    read = read_tor_metrics(path, 0.01)
    content = json.loads(path.read_text())
    assert read.counts["last_byte_50kib"] == 300
    assert read.quantiles["last_byte_50kib"][0] == min(content["download_times"]["51200"])
    assert read.quantiles["last_byte_50kib"][1000] == max(content["download_times"]["51200"])
    assert read.quantiles["error_rate"] == (3.0,) * 1001
    assert read.quantiles["relay_goodput"][0] == 250e9
    assert read.not_counted == ("1 days without downloads",)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({}, "no measurement of the public Tor"),
        ({"circuit_rtt": 3}, "circuit_rtt: .*valid list"),
        ({"circuit_rtt": ["x"]}, "circuit_rtt.0: .*valid number"),
        ({"daily_counts": {"2026-01-01": {"requests": 1}}}, "timeouts: Field required"),
    ],
)
def test_invalid_measurements_are_refused(tmp_path: Path, content: object, what: str) -> None:
    path = tmp_path / "tor_metrics.json"
    path.write_text(json.dumps(content))
    with pytest.raises(AnalysisError, match=what):
        read_tor_metrics(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a store of runs of two variants on three networks, and return it.

    The times of the second variant are a fifth longer than the times of the first one.
    """
    folder = tmp_path_factory.mktemp("tornet-figures")
    for run in read_study(folder).runs:
        slow = {"ewma": 1.0, "swrr": 1.2}[run.variant]
        write_tornet_run(folder / run.directory, run.seed, slow)
        extract(folder / run.directory, folder / run.records)
    return folder


def read_study(store: Path) -> Study:
    classes: dict[str, Any] = {"perf-exit": {}, "perf-onionservice": {}}
    own = {
        "levels": [make_level(300, 1800, 2000, name="tornet", label="0.3%", classes=classes)],
        "figures": [
            {"id": kind, "kind": kind, "level": "tornet", "title": kind} for kind in TORNET_FIGURES
        ],
        "public_tor": read_tor_metrics(metrics_file(store), 0.0001).model_dump(),
        "asked": {},
    }
    content = study_content([1, 2, 3], ["tornet"], [VARIANTS[0], VARIANTS[2]])
    return Study.model_validate(content | own)


def draw_kind(store: Path, kind: str, out: Path, page: Page = TEXT) -> WrittenFigure:
    study = read_study(store)
    spec = FigureSpec(id=kind, kind=kind, level="tornet", title=kind)
    data, (level,) = open_figure(spec, study), study.levels
    for run in study.runs:
        data.add(run.variant, run.seed, load_run(store / run.records, level), level)
    out.mkdir(exist_ok=True)
    return write_figure(data, out, page)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("kind", TORNET_FIGURES)
def test_a_figure_is_drawn_and_the_same_data_give_the_same_bytes(
    store: Path, tmp_path: Path, kind: str
) -> None:
    first, again = (draw_kind(store, kind, tmp_path / name) for name in "ab")
    for name in ("pdf", "png", "csv"):
        assert first.path(name).read_bytes() == again.path(name).read_bytes()
    with only_svg():
        draw_kind(store, kind, tmp_path / "c", COLUMN)
    rows = read_rows(first.path("csv"))
    assert {row["variant"] for row in rows} == {"ewma", "swrr", "public Tor"}
    assert {row["simulations"] for row in rows} == {"3", ""}
    assert ("public Tor", "perf-onionservice") not in {(r["variant"], r["class"]) for r in rows}
    assert "95% t interval" in first.caption
    assert "tor_metrics_2026-01-01--2026-01-31.json" in first.caption


def test_error_rates_have_their_resolution(store: Path) -> None:
    """The resolution of a client's error rate in percent is 100 / (number of its downloads).

    Each client is in the list twice, as in `tornettools plot`.
    """
    study = read_study(store)
    run = load_run(store / study.runs[0].records, study.levels[0])
    ended = known(run["perf-exit"].perf).ended_in(300, 1800)
    counts = [ended.select_client(str(name)).counts() for name in sorted(set(ended.client))]
    listed = [(100 * failed / total, 100 / total) for failed, total in counts for _ in range(2)]
    kept = TORNET_FIGURES["perf-goodput"].keep(run, study.levels[0])
    assert kept["perf-exit"].values["error_rate"] == pytest.approx(np.array(listed))
    assert any(rate for rate, _ in listed)


@pytest.mark.usefixtures("svg_only")
def test_a_report_shows_metrics_and_figures(store: Path, tmp_path: Path) -> None:
    kind, *_ = TORNET_FIGURES
    study = read_study(store)
    drawn = tuple(figure for figure in study.figures if figure.kind == kind)
    path = tmp_path / "study.json"
    write_study(path, study.model_copy(update={"figures": drawn}))
    build(path, store, tmp_path / "out")
    page = (tmp_path / "out" / files.REPORT).read_text()
    assert "Time to last byte of 50 KiB, median" in page
    key = {"class": "perf-exit", "metric": "download_ttlb_50kib_p50_s", "variant": "swrr"}.items()
    rows = read_rows(tmp_path / "out" / files.SUMMARY_CSV)
    (slower,) = (row for row in rows if row.items() >= key)
    assert float(slower["ratio"]) == pytest.approx(1.2, rel=0.1)
    assert (tmp_path / "out" / files.FIGURES / f"{kind}.png").is_file()
