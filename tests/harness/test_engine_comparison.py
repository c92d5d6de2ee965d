"""Studies combined from runs on several engines."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from analysis.formats.files import RECORDS
from analysis.formats.plan_file import PlannedRun, Request
from analysis.formats.study import Run, Study
from onionlab.errors import UserError
from onionlab.questions.engine_comparison import (
    compare_engines,
    engine_levels,
    engine_study,
    variant_study,
    write_effects,
)


def study_runs(planned: Iterable[PlannedRun]) -> tuple[Run, ...]:
    """Return the entries of planned runs in the study file."""
    return tuple(
        Run(**asdict(run), directory=run.run_id, records=f"{run.run_id}/{RECORDS}")
        for run in planned
    )


def study(engine: str, levels: tuple[str, ...] = ("quick",)) -> Study:
    look = {"color": "#000000", "marker": "o", "linestyle": "-"}
    times = {"measured_start_s": 10, "measured_end_s": 20, "stop_s": 30}
    planned = (
        PlannedRun(f"{engine}{level}{name}{seed}", level, name, seed)
        for level in levels
        for name in ("ewma", "rr")
        for seed in (1, 2)
    )
    content: dict[str, Any] = {
        "format": 1,
        "name": "quick",
        "title": "Quick",
        "baseline": "ewma",
        "variants": [{"name": n, "label": n.upper(), **look} for n in ("ewma", "rr")],
        "levels": [{"name": name, "label": name, "classes": {}, **times} for name in levels],
        "figures": [{"id": f"f-{level}", "kind": "k", "level": level} for level in levels],
        "runs": study_runs(planned),
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


def effects(folder: Path, levels: tuple[str, ...], *rows: str) -> list[dict[str, str]]:
    """Return the rows of effects.csv that are computed from these rows of summary.csv."""
    columns = "level,class,metric,unit,variant,baseline,pairs,diff,diff_low,diff_high"
    columns += ",ratio,ratio_low,ratio_high"
    (folder / "summary.csv").write_text("".join(f"{line}\n" for line in (columns, *rows)))
    both = engine_levels({name: study(name, levels) for name in ("shadow", "uml")})
    write_effects(folder / "summary.csv", both, folder / "effects.csv")
    with (folder / "effects.csv").open() as lines:
        return list(csv.DictReader(lines))


def test_effects_of_the_engines_are_in_one_row(tmp_path: Path) -> None:
    ttfb, timeouts = effects(
        tmp_path,
        ("quick",),
        "quick-shadow,web,ttfb,s,rr,ewma,3,0.5,0.1,0.9,1.2,1.1,1.3",
        "quick-shadow,web,ttfb,s,ewma,,,,,,,,",
        "quick-uml,web,ttfb,s,rr,ewma,3,0.4,0.2,0.6,1.1,1.0,1.2",
        "quick-uml,web,timeouts,1,rr,ewma,3,0,0,0,,,",
    )
    assert (ttfb["level"], ttfb["shadow_diff"], ttfb["uml_diff_high"]) == ("quick", "0.5", "0.6")
    assert (timeouts["shadow_diff"], timeouts["uml_diff"]) == ("", "0")


def test_effects_keep_the_order_of_levels(tmp_path: Path) -> None:
    rows = effects(
        tmp_path,
        ("low", "high"),
        "low-shadow,web,ttfb,s,rr,ewma,3,1,,,,,",
        "low-uml,web,ttfb,s,rr,ewma,2,2,,,,,",
        "high-shadow,web,ttfb,s,rr,ewma,3,3,,,,,",
        "high-uml,web,ttfb,s,rr,ewma,3,4,,,,,",
    )
    levels = [(row["level"], row["pairs"]) for row in rows]
    assert levels == [("low", "3"), ("low", "2"), ("high", "3")]


def test_one_engine_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="takes 2 to 3 engines, got 1"):
        compare_engines(tmp_path, Request("quick"), ["shadow"], None)
