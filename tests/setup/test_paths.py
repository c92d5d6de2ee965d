"""Paths of the checkout, and how messages name files."""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab import paths
from onionlab.experiment import experiment_names
from onionlab.yamlfile.model import display_name

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_working_root_is_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.working_root() == paths.code_root() == REPOSITORY
    assert experiment_names(tmp_path) == []


def test_messages_name_files_relative_to_the_checkout(tmp_path: Path) -> None:
    assert display_name(tmp_path / "experiments" / "x.yaml", tmp_path) == "experiments/x.yaml"
    assert display_name(Path("/etc/../etc/x.yaml"), tmp_path) == "/etc/../etc/x.yaml"


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "missing"])
def test_a_name_that_no_file_can_have_is_not_a_file(tmp_path: Path, name: str) -> None:
    assert not paths.is_file(tmp_path / name)
    assert not paths.is_folder(tmp_path / name)
