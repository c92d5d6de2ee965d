"""study.json is checked before use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from analysis_synthetic import study_content

from analysis.errors import AnalysisError
from analysis.formats.study import load_study


def load(tmp_path: Path, content: Any) -> Any:
    path = tmp_path / "study.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_study(path)


def test_a_study_reads(tmp_path: Path) -> None:
    study = load(tmp_path, study_content([2, 1], ["5mid", "10mid"]))
    assert [run.seed for run in study.runs_of("10mid", "rr")] == [1, 2]
    assert study.level("5mid").horizon_s("web") == 60.0


@pytest.mark.parametrize(
    ("timeout", "stop", "horizon"), [(60.0, 1080.0, 60.0), (60.0, 1050.0, 30.0), (None, 1100, 80)]
)
def test_horizon(tmp_path: Path, timeout: float | None, stop: float, horizon: float) -> None:
    content = study_content([1])
    content["levels"][0]["classes"]["web"]["timeout_s"] = timeout
    content["levels"][0]["stop_s"] = stop
    assert load(tmp_path, content).level("5mid").horizon_s("web") == horizon


def change(path: list[Any], value: Any) -> dict[str, Any]:
    content: Any = study_content([1, 2])
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return dict(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        (change(["format"], 2), "format"),
        (change(["baseline"], "fifo"), "baseline fifo"),
        (change(["variants", 0, "name"], "rr"), "variant rr occurs more than once"),
        (change(["runs", 0, "variant"], "fifo"), "unknown variant fifo"),
        (change(["runs", 0, "level"], "7mid"), "unknown level 7mid"),
        (change(["runs", 0, "seed"], 2), "more than once"),
        (change(["figures", 0, "level"], "7mid"), "unknown level 7mid"),
        (change(["figures", 0, "id"], "../x"), "figures.0.id"),
        (change(["levels", 0, "measured_end_s"], 400.0), "measured_start_s"),
        (change(["levels", 0, "stop_s"], 1000.0), "stop_s"),
        (change(["levels", 0, "stop_s"], float("inf")), "levels.0.stop_s"),
        (change(["levels", 0, "classes", "web", "timeout_s"], float("nan")), "web.timeout_s"),
        (change(["variants", 0, "linestyle"], [0, [float("inf"), 1]]), "variants.0.linestyle"),
        (change(["variants"], []), "variants"),
    ],
)
def test_a_bad_study_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        load(tmp_path, content)


def test_no_study(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="is missing"):
        load_study(tmp_path / "study.json")


@pytest.mark.parametrize(
    ("label", "title", "shown"),
    [
        ("5 middles", "Times, 5 middles", "Times, 5 middles at scale 0.1"),
        ("5 middles", "Times with 5 middles (web)", "Times with 5 middles at scale 0.1 (web)"),
        ("5 middles", "Beside 15 middles", "Beside 15 middles, 5 middles at scale 0.1"),
        ("byte", "Time to first byte, byte", "Time to first byte, byte at scale 0.1"),
        ("a", "Load at a", "Load at a at scale 0.1"),
        ("(a|b)", "Load, (a|b)", "Load, (a|b) at scale 0.1"),
    ],
)
def test_a_title_names_its_level_once(tmp_path: Path, label: str, title: str, shown: str) -> None:
    content = study_content([1])
    content["levels"][0]["label"] = label
    content["figures"][0]["title"] = title
    study = load(tmp_path, content)
    assert study.figure_title(study.figures[0]) == shown
    full = study.model_copy(update={"asked": {"scale": 1.0}})
    assert full.figure_title(study.figures[0]) == shown.replace(" at scale 0.1", "")
