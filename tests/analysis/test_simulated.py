"""The description of the simulated networks at the top of a report."""

from __future__ import annotations

import pytest

from analysis.formats.study import ClassLoad, Level, Study, Variant
from analysis.pages.study_notes import simulated

VARIANT = Variant(name="v", label="v", color="#112233", marker="o", linestyle="-")


def level(name: str, relays: dict[str, int]) -> Level:
    return Level(
        name=name, label=name, measured_start_s=1, measured_end_s=2, stop_s=3,
        classes={"web": ClassLoad(count=10), "bulk": ClassLoad(count=2)}, relays=relays,
    )  # fmt: skip


def study(*levels: Level, scale: float | None = 0.1) -> Study:
    return Study(
        format=1, name="s", title="s", description="", baseline=None, variants=(VARIANT,),
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
