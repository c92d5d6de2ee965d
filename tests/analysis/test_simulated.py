"""What stands at the top of a report about what was simulated."""

from __future__ import annotations

import pytest

from analysis.formats.study import ClassLoad, Level, Study, Variant
from analysis.pages.simulated import simulated

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


def test_a_level_is_called_what_it_is() -> None:
    assert simulated(study(level("5mid", {"guard": 3, "middle": 1}))) == [
        "Simulated: scale 0.1, engine uml 6.12.",
        "5mid at scale 0.1: 4 relays (3 guard, 1 middle); clients: 10 web, 2 bulk.",
    ]


def test_each_of_several_levels_has_its_own_line() -> None:
    lines = simulated(study(level("20mid", {"middle": 2}), level("5mid", {"middle": 1}), scale=1))
    assert lines == [
        "Simulated: scale 1, engine uml 6.12.",
        "20mid: 2 relays (2 middle); clients: 10 web, 2 bulk.",
        "5mid: 1 relay (1 middle); clients: 10 web, 2 bulk.",
    ]


def test_what_studies_share_is_said_once() -> None:
    one, other = study(level("5mid", {"middle": 1})), study(level("10mid", {"middle": 1}))
    assert simulated(one, one) == simulated(one)
    assert len(simulated(one, other)) == 3


def test_what_is_not_known_is_left_out() -> None:
    assert simulated(study(level("5mid", {}), scale=None)) == ["5mid: clients: 10 web, 2 bulk."]


def test_an_older_study_tells_what_was_made_smaller() -> None:
    older = study(level("5mid", {})).model_copy(update={"shrunk": ("middle relays 5 -> 1",)})
    assert simulated(older)[-1] == "5mid at scale 0.1, reduced: middle relays 5 -> 1."


@pytest.mark.parametrize("scale", [10**400, float("nan"), -1, 0, "0.1"])
def test_a_scale_that_is_none_changes_no_label(scale: object) -> None:
    strange = study(level("5mid", {"middle": 1})).model_copy(update={"asked": {"scale": scale}})
    assert strange.label(strange.levels[0]) == "5mid"
    assert simulated(strange)[0].startswith("Simulated: scale 1")
