"""Studies combined from runs on several engines."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from analysis.formats.plan_file import Request
from analysis.formats.study import Study
from onionlab.errors import UserError
from onionlab.questions.engine_comparison import (
    compare_engines,
    engine_levels,
    engine_study,
    variant_study,
    write_effects,
)


def study(engine: str, levels: tuple[str, ...] = ("quick",)) -> Study:
    look = {"color": "#000000", "marker": "o", "linestyle": "-"}
    content: dict[str, Any] = {
        "format": 1,
        "name": "quick",
        "title": "Quick",
        "baseline": "ewma",
        "variants": [{"name": n, "label": n.upper(), **look} for n in ("ewma", "rr")],
        "levels": [
            {
                "name": level,
                "label": level,
                "measured_start_s": 10,
                "measured_end_s": 20,
                "stop_s": 30,
                "classes": {},
            }
            for level in levels
        ],
        "figures": [{"id": f"f-{level}", "kind": "k", "level": level} for level in levels],
        "runs": [
            {
                "run_id": f"{engine}{level}{name}{seed}",
                "level": level,
                "variant": name,
                "seed": seed,
                "directory": "d",
                "records": "r",
            }
            for level in levels
            for name in ("ewma", "rr")
            for seed in (1, 2)
        ],
        "asked": {},
        "shrunk": [],
        "margins": {"ttfb_p50_s": 0.03},
        "provenance": {"engine": {"name": engine, "version": "1"}},
    }
    return Study.model_validate(content)


BOTH = {"shadow": study("shadow"), "uml": study("uml")}


def test_engines_take_the_place_of_variants() -> None:
    made = engine_study(BOTH)
    assert made.baseline == "shadow"
    assert [variant.name for variant in made.variants] == ["shadow", "uml"]
    assert [level.label for level in made.levels] == ["EWMA", "RR"]
    # A comparison pairs runs of one policy in one network on two engines.
    assert [r.run_id for r in made.runs_of("quick-rr", "uml")] == ["umlquickrr1", "umlquickrr2"]
    assert {figure.level for figure in made.figures} == {"quick-ewma", "quick-rr"}


def test_engines_take_the_place_of_levels() -> None:
    made = variant_study(BOTH)
    assert made.baseline == "ewma"
    assert [level.name for level in made.levels] == ["quick-shadow", "quick-uml"]
    assert made.margins == {"ttfb_p50_s": 0.03}
    assert [r.run_id for r in made.runs_of("quick-uml", "rr")] == ["umlquickrr1", "umlquickrr2"]


def test_levels_of_engines_may_have_any_names() -> None:
    studies = {name: study(name, ("low", "low-load")) for name in ("uml", "uml-next")}
    levels = engine_levels(studies)
    assert list(levels) == [level.name for level in variant_study(studies).levels]
    assert levels["low-load-uml-next"] == ("low-load", "uml-next")


def test_effects_of_the_engines_are_in_one_row(tmp_path: Path) -> None:
    columns = "level,class,metric,unit,variant,baseline,pairs,diff,diff_low,diff_high"
    columns += ",ratio,ratio_low,ratio_high"
    (tmp_path / "summary.csv").write_text(
        f"{columns}\n"
        "quick-shadow,web,ttfb,s,rr,ewma,3,0.5,0.1,0.9,1.2,1.1,1.3\n"
        "quick-shadow,web,ttfb,s,ewma,,,,,,,,\n"
        "quick-uml,web,ttfb,s,rr,ewma,3,0.4,0.2,0.6,1.1,1.0,1.2\n"
        "quick-uml,web,timeouts,1,rr,ewma,3,0,0,0,,,\n"
    )
    write_effects(tmp_path / "summary.csv", engine_levels(BOTH), tmp_path / "effects.csv")
    with (tmp_path / "effects.csv").open() as lines:
        ttfb, timeouts = csv.DictReader(lines)
    assert (ttfb["level"], ttfb["shadow_diff"], ttfb["uml_diff_high"]) == ("quick", "0.5", "0.6")
    assert (timeouts["shadow_diff"], timeouts["uml_diff"]) == ("", "0")


def test_effects_keep_the_order_of_levels(tmp_path: Path) -> None:
    columns = "level,class,metric,unit,variant,baseline,pairs,diff,diff_low,diff_high"
    (tmp_path / "summary.csv").write_text(
        f"{columns},ratio,ratio_low,ratio_high\n"
        "low-shadow,web,ttfb,s,rr,ewma,3,1,,,,,\nlow-uml,web,ttfb,s,rr,ewma,2,2,,,,,\n"
        "high-shadow,web,ttfb,s,rr,ewma,3,3,,,,,\nhigh-uml,web,ttfb,s,rr,ewma,3,4,,,,,\n"
    )
    studies = {name: study(name, ("low", "high")) for name in ("shadow", "uml")}
    write_effects(tmp_path / "summary.csv", engine_levels(studies), tmp_path / "effects.csv")
    with (tmp_path / "effects.csv").open() as lines:
        rows = [(row["level"], row["pairs"]) for row in csv.DictReader(lines)]
    assert rows == [("low", "3"), ("low", "2"), ("high", "3")]


def test_one_engine_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="takes 2 to 3 engines, got 1"):
        compare_engines(tmp_path, Request("quick"), ["shadow"], None)
