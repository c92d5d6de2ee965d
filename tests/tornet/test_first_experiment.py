"""The experiment file that an import of tornettools' networks writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab.experiment import load
from onionlab.experiment.tornettools import TornetSettings
from onionlab.experiment.tornettools_networks import write_first_experiment
from onionlab.tornet.keeping import import_tornets

from .tiny import TinyTornet

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("tor-patches", "configs"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    return tmp_path


def imported(root: Path, stop_s: int = 3600) -> str:
    """Import two tiny networks as `tiny` and write the experiment. Return the output."""
    directories = []
    for seed in (1, 2):
        tiny = TinyTornet(seed)
        tiny.config["general"]["stop_time"] = stop_s
        directory = root / f"tornet-{seed}"
        directories.append(directory if directory.exists() else tiny.write(directory))
    kept = import_tornets(root, "tiny", directories)
    return write_first_experiment(root, "tiny", kept[0].tornet, len(kept))


@pytest.mark.parametrize(
    ("stop_s", "measured_s"),
    [
        (3600, (1200, 3480)),
        (1000, (333, 880)),
        # The networks bootstrap until 300 s, so the measurement does not begin earlier.
        (600, (300, 480)),
        (430, (300, 310)),
        (400, (300, 400)),
    ],
)
def test_it_can_be_run_as_it_is(root: Path, stop_s: int, measured_s: tuple[int, int]) -> None:
    message = imported(root, stop_s)
    assert message == f"{root / 'experiments/tiny.yaml'} written: make experiment NAME=tiny"
    experiment = load("tiny", root=root)
    (level,) = experiment.levels.values()
    assert isinstance(level.settings, TornetSettings)
    time = level.settings.time
    assert (time.measured_start_s, time.measured_end_s) == measured_s
    assert time.stop_s == stop_s
    assert experiment.seeds == (1, 2)
    assert level.settings.tor.baseline == "ewma"


def test_its_settings_are_the_defaults_and_it_extends_nothing(root: Path) -> None:
    imported(root)
    file = root / "experiments/tiny.yaml"
    (written,) = load("tiny", root=root).levels.values()
    text = file.read_text()
    assert "extends" not in text
    bare = "".join(
        line
        for line in text.splitlines(keepends=True)
        if not line.startswith(("  oniontrace", "  deployment", "  trace", "  markov", "  stop"))
        and not line.startswith(("  measured_from", "  drain", "traffic:", "time:"))
    )
    file.write_text(bare)
    (of_defaults,) = load("tiny", root=root).levels.values()
    assert written.settings == of_defaults.settings


def test_an_existing_experiment_is_not_changed(root: Path) -> None:
    imported(root)
    file = root / "experiments/tiny.yaml"
    file.write_text(f"{file.read_text()}# mine\n")
    assert imported(root) == f"{file} exists and is not changed"
    assert file.read_text().endswith("# mine\n")


@pytest.mark.parametrize("name", ["figures", "Tiny", "tiny_1"])
def test_names_that_no_experiment_can_have(root: Path, name: str) -> None:
    kept = import_tornets(root, name, [TinyTornet().write(root / "tornet")])
    message = write_first_experiment(root, name, kept[0].tornet, 1)
    assert message == f"no experiments/{name}.yaml: no experiment can have this name"
    assert not (root / "experiments").exists()
