"""The pages about experiments agree with the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shipped import EXPERIMENTS, EXPERIMENTS_PAGE, require_named

from onionlab.experiment import experiment_names, load
from onionlab.tornet.shadow_options import (
    EXPERIMENTAL,
    GENERAL,
    HOST_OPTION_DEFAULTS,
    REFUSED,
    SPOILING,
)
from onionlab.yamlfile.units import RATE_UNITS, SIZE_UNITS, TIME_UNITS

from .conftest import REPOSITORY, VALID, Refused, Write

PAGE = (REPOSITORY / "docs" / "reference" / "experiments.md").read_text(encoding="utf-8")
HOW_TO = (REPOSITORY / "docs" / "how-to" / "add-an-experiment.md").read_text(encoding="utf-8")
TUNE_TOR = (REPOSITORY / "docs" / "how-to" / "tune-tor.md").read_text(encoding="utf-8")


def block(page: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_example_loads(checkout: Path, write: Write) -> None:
    table = (REPOSITORY / "experiments" / "base" / "table1.yaml").read_text(encoding="utf-8")
    write("base/table1", table)
    write("example", block(HOW_TO, "yaml"))
    experiment = load("example", root=checkout)
    everywhere, half = (level.settings.tor.deployment for level in experiment.levels.values())
    assert (everywhere.where, half.where, half.fraction) == ("relays", "relays", 0.5)
    assert experiment.warnings == ()


def test_the_example_of_tuning_loads(checkout: Path, write: Write) -> None:
    for name in ("base/table1", "base/today", "today"):
        write(name, (REPOSITORY / "experiments" / f"{name}.yaml").read_text(encoding="utf-8"))
    changed, levels, without = re.findall(r"```yaml\n(.*?)```", TUNE_TOR, re.DOTALL)
    write("small-window", changed)
    write("windows", changed + levels)
    write("no-conflux", without)
    (level,) = load("no-conflux", root=checkout).levels.values()
    assert "cfx_low_exit_threshold" not in level.settings.tor.consensus_params
    windows = [
        level.settings.tor.consensus_params["cc_cwnd_init"]
        for name in ("small-window", "windows")
        for level in load(name, root=checkout).levels.values()
    ]
    assert windows == [62, 62, 248]


def test_the_quoted_error_is_the_real_one(refused: Refused) -> None:
    (error,) = refused(VALID.replace('"320 KiB"', '"320 Kb!"'))
    quoted = block(PAGE, "text").strip()
    assert re.sub(r":[0-9]+:", ":N:", error) == re.sub(r":[0-9]+:", ":N:", quoted)


@pytest.mark.parametrize("unit", [*SIZE_UNITS, *TIME_UNITS, *RATE_UNITS])
def test_every_unit_is_named(unit: str) -> None:
    table = PAGE[PAGE.index("## Values") : PAGE.index("A quantity without")]
    assert re.search(rf"\b{re.escape(unit.removesuffix('/s'))}\b", table)


def test_every_refused_option_of_shadow_is_named_and_not_accepted() -> None:
    for option in (*REFUSED, *SPOILING):
        assert option in PAGE
    assert not {*GENERAL, *EXPERIMENTAL, *HOST_OPTION_DEFAULTS} & set(REFUSED)


def test_named_experiments_and_existing_ones_are_the_same() -> None:
    there = experiment_names(REPOSITORY)
    assert set(EXPERIMENTS) <= set(there)
    require_named(there, EXPERIMENTS, EXPERIMENTS_PAGE)
