"""The list of nightly experiments: its contents, and the line in the message for each mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.experiment import experiment_names
from onionlab.experiment.nightly_list import NightlyEntry, NightlyList, read_nightly_list

from .conftest import REPOSITORY

LIST = """\
# What runs every night.
false_alarms_per_year: 2
nights_per_year: 365

experiments:
  - {name: foo, variants: [ewma], networks: 10}
  - name: bar
    seeds: [1, 4]
    scale: 0.5
    engine: uml
"""

Read = Callable[[str], NightlyList]


@pytest.fixture
def read(checkout: Path) -> Read:
    def read_text(text: str) -> NightlyList:
        for name in ("foo", "bar"):
            (checkout / "experiments" / f"{name}.yaml").touch()
        path = checkout / "experiments" / "nightly.yaml"
        path.write_text(text, encoding="utf-8")
        return read_nightly_list(path, root=checkout)

    return read_text


def test_the_list_is_kept_as_it_was_written(read: Read) -> None:
    made = read(LIST)
    assert made.experiments == (
        NightlyEntry(name="foo", variants=("ewma",), networks=10),
        NightlyEntry(name="bar", seeds=[1, 4], scale=0.5, engine="uml"),
    )
    assert (made.false_alarms_per_year, made.false_steps_per_year) == (2.0, 1.0)
    assert made.experiments[0].scale is None
    assert read("experiments: [{name: ./own.yaml}]").experiments[0].seeds is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("networks: 10", "sedes: 1", '6: experiments[1].sedes: unknown key; did you mean "seeds"?'),
        ("seeds: [1, 4]", "seeds: 1\n    networks: 1", "8: experiments[2].seeds: is another name"),
        ("[1, 4]", "[1, 1]", "8: experiments[2].seeds: expected a number of networks"),
        ("name: bar", "nme: bar", "7: experiments[2].nme: unknown key"),
        ("name: bar", "name: fo", 'no experiment "fo"; did you mean "foo"?'),
        ("name: bar", "name: foo", '7: experiments[2].name: "foo" is listed twice'),
        ("name: bar", "name: own/foo.yaml", '7: experiments[2].name: "foo" is listed twice'),
        ("scale: 0.5", "scale: half", "9: experiments[2].scale: expected a number, got"),
        ("year: 2", "year: -1", "2: false_alarms_per_year: expected more than 0, got -1"),
        ("365", "0", "3: nights_per_year: expected 1 or more, got 0"),
        (LIST, "experiments: []", "1: experiments: expected 1 or more entries"),
        (LIST, "experiments: [quick]", "1: experiments[1]: expected a mapping (key: value)"),
        (LIST, "nights_per_year: 3", "1: experiments: missing"),
    ],
)
def test_a_mistake_is_named_with_its_line(read: Read, old: str, new: str, message: str) -> None:
    assert old in LIST
    with pytest.raises(UserError) as caught:
        read(LIST.replace(old, new, 1))
    said = caught.value.message
    assert message in said
    assert all("experiments/nightly.yaml:" in line for line in said.splitlines())
    assert caught.value.hint is not None
    assert "{name: quick" in caught.value.hint


def test_a_missing_list(checkout: Path) -> None:
    with pytest.raises(UserError, match=r"experiments/nightly\.yaml: cannot be read"):
        read_nightly_list(checkout / "experiments" / "nightly.yaml", root=checkout)


def test_the_shipped_list_names_experiments() -> None:
    shipped = read_nightly_list(REPOSITORY / "experiments" / "nightly.yaml", root=REPOSITORY)
    assert {entry.name for entry in shipped.experiments} <= set(experiment_names(REPOSITORY))
    assert "nightly" not in experiment_names(REPOSITORY)
