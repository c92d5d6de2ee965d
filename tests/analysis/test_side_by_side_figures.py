"""Figures of parallel downloads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from analysis_synthetic import make_level, read_rows, study_content

from analysis.errors import AnalysisError
from analysis.figures.catalogue import open_figure
from analysis.figures.style import COLUMN, TEXT, Page
from analysis.figures.writing import write_figure
from analysis.formats.study import FigureSpec, Level, Study
from analysis.measures.data import NO_BEATS, NO_STREAMS, ClassData
from analysis.measures.downloads import Download, Downloads


def level(name: str, rate: float, streams: int, cc_alg: int = 0) -> Level:
    where = {"bottleneck_kib_per_s": rate, "streams": streams, "cc_alg": cc_alg}
    return make_level(90, 120, 300, name=name, label=name, coordinates=where)


LEVELS = (
    level("slow", 100, 2),
    level("fast", 600, 2),
    level("many", 600, 5),
    level("vegas", 600, 5, cc_alg=2),
)
SPECS = (
    FigureSpec(id="bytes", kind="stream-progress", level="slow"),
    FigureSpec(id="map", kind="starvation-map", level="slow"),
)


def study() -> Study:
    look = {"color": "#4477AA", "marker": "o", "linestyle": "-"}
    variants = [{"name": n, "label": n.upper(), **look} for n in ("list", "lrs")]
    own = {"levels": LEVELS, "figures": SPECS, "baseline": None}
    return Study.model_validate(study_content([], variants=variants) | own)


def run(group: Downloads) -> dict[str, ClassData]:
    sides = (tuple(group),) if group else ()
    return {"streams": ClassData(NO_STREAMS, NO_BEATS, 90, 120, None, sides)}


def streams(*waits_s: float) -> Downloads:
    """Return a stream of 1000 B for each wait. A stream waits, then receives 100 B per second."""
    group = []
    for wait_s in waits_s:
        times = np.asarray(90.0 + wait_s + np.arange(1, 11), dtype=np.float64)
        received = np.asarray(100.0 * np.arange(1, 11), dtype=np.float64)
        group.append(
            Download.from_progress(
                90.0, float(times[-1]), float(times[-1]), 1000.0, times, received
            )
        )
    return tuple(group)


@pytest.mark.parametrize("page", [TEXT, COLUMN])
def test_bytes_over_time_show_the_first_network(tmp_path: Path, page: Page) -> None:
    data = open_figure(SPECS[0], study())
    assert [data.shows(one) for one in LEVELS] == [True, False, False, False]
    data.add("list", 2, run(streams(0, 0)), LEVELS[0])
    data.add("list", 1, run(streams(5, 0)), LEVELS[0])
    data.add("lrs", 1, run(streams(0, 0)), LEVELS[0])
    paths = write_figure(data, tmp_path, page)
    assert paths.caption.startswith("Network 1. ")
    assert ("Jain" in paths.caption) == (page is TEXT)
    assert paths.path("png").stat().st_size > 5000
    drawn = {
        (row["variant"], row["stream"], float(row["x_s"])): float(row["value"])
        for row in read_rows(paths.path("csv"))
        if row["panel"] == "received_bytes"
    }
    assert [drawn["list", n, 4.0] for n in ("1", "2")] == [0, 400]
    assert [drawn["list", n, 9.0] for n in ("1", "2")] == [400, 900]
    assert drawn["lrs", "1", 4.0] == 400
    if page is TEXT:
        (legend,) = data.kind.draw(data, page).legends
        assert [text.get_text() for text in legend.get_texts()] == ["streams 1 to 2"]
    jain = [row for row in read_rows(paths.path("csv")) if row["panel"] == "jain_index"]
    assert {row["variant"] for row in jain} == {"list", "lrs"}


def test_runs_without_progress_are_an_error(tmp_path: Path) -> None:
    data = open_figure(SPECS[0], study())
    data.add("list", 1, run(()), LEVELS[0])
    with pytest.raises(AnalysisError, match="lack the progress of streams") as caught:
        write_figure(data, tmp_path)
    assert "info" in str(caught.value.hint)


@pytest.mark.parametrize("page", [TEXT, COLUMN])
def test_a_map_shows_all_levels_of_one_congestion_control(tmp_path: Path, page: Page) -> None:
    data = open_figure(SPECS[1], study())
    assert [data.shows(one) for one in LEVELS] == [True, True, True, False]
    data.add("list", 1, run(streams(20, 0)), LEVELS[0])
    data.add("list", 2, run(streams(5, 0)), LEVELS[0])
    data.add("list", 1, run(streams(0, 0)), LEVELS[1])
    # A level in which a run lacks a value is omitted.
    data.add("list", 1, run(streams(0, 0, 0, 0, 0)), LEVELS[2])
    data.add("list", 2, run(()), LEVELS[2])
    paths = write_figure(data, tmp_path, page)
    assert paths.path("csv").read_text().splitlines() == [
        "variant,bottleneck_kib_per_s,streams,mean,low,high,seeds",
        "list,100,2,0.75,0.5,1,2",
        "list,600,2,0,0,0,1",
    ]
    assert "mean over 1 to 2 networks" in paths.caption
    assert "cc_alg=0" in paths.caption


@pytest.mark.parametrize("spec", SPECS)
def test_without_runs_there_is_an_empty_figure(tmp_path: Path, spec: FigureSpec) -> None:
    paths = write_figure(open_figure(spec, study()), tmp_path)
    assert len(read_rows(paths.path("csv"))) == 0
    assert paths.path("pdf").exists()
