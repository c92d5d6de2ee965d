from __future__ import annotations

from pathlib import Path

import pytest

from onionlab.cli import main
from onionlab.commands import list as list_command
from onionlab.commands import schema as schema_command
from onionlab.experiment.header import ExperimentFile
from onionlab.experiment.reference import SCHEMAS, editor_schema

from .conftest import VALID, Write


def test_list_shows_experiments_and_variants_despite_a_broken_file(
    checkout: Path,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("short", VALID)
    write("a-longer-name", VALID.replace("A small", "Another small"))
    monkeypatch.setattr(list_command, "working_root", lambda: checkout)
    assert main(["list"]) == 0
    expected = [
        "Experiments (make experiment NAME=...)",
        "  a-longer-name  Another small experiment (4 runs)",
        "  short          A small experiment (4 runs)",
        "",
        "Variants of Tor",
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == expected
    assert any(line.startswith("  ewma ") for line in lines[5:])
    write("broken", "title: [")
    assert main(["list"]) == 2
    output = capsys.readouterr()
    assert set(output.out.splitlines()) >= {*expected, *lines[5:]}
    assert output.err.startswith("error: experiments/broken.yaml:1: broken YAML: ")


def test_schema_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == editor_schema(ExperimentFile)
    assert main(["schema", "peers", "--reference"]) == 0
    assert "| `libtorrent.variants` | list of text | required |" in capsys.readouterr().out


def test_schema_writes_the_files_that_shipped_experiments_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_command, "working_root", lambda: tmp_path)
    assert main(["schema", "--write"]) == 0
    for file, model in SCHEMAS.values():
        assert (tmp_path / "experiments" / file).read_text() == editor_schema(model)
