"""study.json is checked before use, and its networks are described."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from analysis_synthetic import make_level, study_content

from analysis.errors import AnalysisError
from analysis.formats.study import Level, Study, load_study
from analysis.pages.study_notes import simulated


def load(tmp_path: Path, content: Any) -> Any:
    path = tmp_path / "study.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_study(path)


def test_a_study_reads(tmp_path: Path) -> None:
    loaded = load(tmp_path, study_content([2, 1], ["5mid", "10mid"]))
    assert [run.seed for run in loaded.runs_of("10mid", "rr")] == [1, 2]


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
    loaded = load(tmp_path, content)
    assert loaded.figure_title(loaded.figures[0]) == shown
    full = loaded.model_copy(update={"asked": {"scale": 1.0}})
    assert full.figure_title(loaded.figures[0]) == shown.replace(" at scale 0.1", "")


# ----- the description of the simulated networks


def level(name: str, relays: dict[str, int]) -> Level:
    classes = {"web": {"count": 10}, "bulk": {"count": 2}}
    return make_level(1, 2, 3, name=name, label=name, classes=classes, relays=relays)


def study(*levels: Level, scale: float | None = 0.1) -> Study:
    (variant, *_) = Study.model_validate(study_content([1])).variants
    return Study(
        format=1, name="s", title="s", description="", baseline=None, variants=(variant,),
        levels=levels, figures=(), runs=(), asked={} if scale is None else {"scale": scale},
        provenance={"engine": {"name": "uml", "version": "6.12"}} if scale is not None else {},
    )  # fmt: skip


def test_each_level_has_a_line_once() -> None:
    lines = [
        "Simulated: scale 0.1, engine uml 6.12.",
        "20mid at scale 0.1: 3 relays (1 guard, 2 middle); clients: 10 web, 2 bulk.",
        "5mid at scale 0.1: 1 relay (1 middle); clients: 10 web, 2 bulk.",
    ]
    both = study(level("20mid", {"guard": 1, "middle": 2}), level("5mid", {"middle": 1}))
    assert simulated(both) == simulated(both, both) == lines


def test_unknown_facts_are_omitted() -> None:
    assert simulated(study(level("5mid", {}), scale=None)) == ["5mid: clients: 10 web, 2 bulk."]
    older = study(level("5mid", {})).model_copy(update={"shrunk": ("middle relays 5 -> 1",)})
    assert simulated(older)[-1] == "5mid at scale 0.1, reduced: middle relays 5 -> 1."


@pytest.mark.parametrize("scale", [10**400, float("nan"), -1, 0, "0.1"])
def test_an_invalid_scale_changes_no_label(scale: object) -> None:
    strange = study(level("5mid", {"middle": 1})).model_copy(update={"asked": {"scale": scale}})
    assert strange.label(strange.levels[0]) == "5mid"
    assert simulated(strange)[0].startswith("Simulated: scale 1")
