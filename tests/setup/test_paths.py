"""Where shipped files are found, in a checkout and where a wheel is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab import cli, paths
from onionlab.experiment import experiment_names, load
from onionlab.experiment.claims_file import claim_files
from onionlab.network import load_relays
from onionlab.programs.tor.variants import load_variants
from onionlab.yamlfile.reading import display_name

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, beside a package that carries what is shipped."""
    share = tmp_path / "share"
    share.mkdir()
    for name in ("experiments", "configs", "tor-patches", "libtorrent-patches"):
        (share / name).symlink_to(REPOSITORY / name)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.setattr(paths, "SHARE", share)
    monkeypatch.chdir(here)
    return here


def test_a_checkout_is_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.is_checkout()
    assert paths.working_root() == paths.code_root() == REPOSITORY
    assert paths.shipped(tmp_path, "configs/regions.yaml") == tmp_path / "configs/regions.yaml"
    assert experiment_names(tmp_path) == []


def test_what_is_shipped_is_found_from_anywhere(installed: Path) -> None:
    assert not paths.is_checkout()
    assert paths.working_root() == installed
    assert paths.build_directory(installed) == installed / "build"
    assert experiment_names(installed) == experiment_names(REPOSITORY)
    assert claim_files(installed) == claim_files(REPOSITORY)
    assert load_variants(installed) == load_variants(REPOSITORY)
    here, there = load("swrr-5mid", root=installed), load("swrr-5mid", root=REPOSITORY)
    assert (here.levels, here.variants) == (there.levels, there.variants)
    assert list(installed.iterdir()) == []


def test_ones_own_files_go_before_the_shipped_ones(installed: Path) -> None:
    (installed / "experiments" / "base").mkdir(parents=True)
    (installed / "configs").mkdir()
    (installed / "experiments" / "mine.yaml").write_text("extends: [quick.yaml]\ntitle: Mine\n")
    (installed / "experiments" / "quick.yaml").write_text("extends: base/5mid.yaml\ntitle: Ours\n")
    text = "distributions:\n  middle: [1]\n"
    (installed / "configs" / "relay-capacity.yaml").write_text(text)
    assert experiment_names(installed) == sorted({*experiment_names(REPOSITORY), "mine"})
    assert [one.link_bit_per_s for one in load_relays(installed, "middle")] == [8192]
    own = paths.shipped(installed, "experiments/quick.yaml")
    assert own == installed / "experiments" / "quick.yaml"
    files = paths.shipped_files(installed, "experiments", "*.yaml")
    assert files["quick.yaml"] == own
    assert files["swrr-5mid.yaml"].is_relative_to(paths.SHARE)
    assert list(files) == sorted(files)


def test_an_own_experiment_extends_a_shipped_one(installed: Path) -> None:
    (installed / "experiments").mkdir()
    (installed / "experiments" / "mine.yaml").write_text("extends: quick.yaml\ntitle: Mine\n")
    made = load("mine", root=installed)
    assert made.title == "Mine"
    assert made.variants == load("quick", root=installed).variants


def test_the_schema_is_written_into_a_checkout_alone(installed: Path) -> None:
    assert cli.main(["schema", "--write"]) == 2
    assert list(installed.iterdir()) == []


def test_a_shipped_file_is_named_as_in_a_checkout(tmp_path: Path) -> None:
    inside = paths.SHARE / "experiments" / "quick.yaml"
    assert display_name(inside, tmp_path) == "experiments/quick.yaml"
    assert display_name(tmp_path / "experiments" / "x.yaml", tmp_path) == "experiments/x.yaml"
