from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onionlab.cli import main
from onionlab.commands import list as list_command
from onionlab.commands import schema as schema_command
from onionlab.experiment.reference import (
    json_schema,
    peers_json_schema,
    reference,
    tornet_json_schema,
)

from .conftest import VALID

Write = Callable[[str, str], None]


def test_list_shows_experiments_and_variants(
    checkout: Path,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("short", VALID)
    write("a-longer-name", VALID.replace("A small", "Another small"))
    monkeypatch.setattr(list_command, "working_root", lambda: checkout)
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "Experiments (make experiment NAME=...)",
        "  a-longer-name  Another small experiment (4 runs)",
        "  short          A small experiment (4 runs)",
        "",
        "Variants of Tor",
    ]
    assert any(line.startswith("  ewma ") for line in lines[5:])


def test_a_broken_file_does_not_hide_the_others(
    checkout: Path,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("broken", "title: [")
    write("good", VALID)
    monkeypatch.setattr(list_command, "working_root", lambda: checkout)
    assert main(["list"]) == 2
    output = capsys.readouterr()
    assert "  good    A small experiment (4 runs)" in output.out
    assert "  ewma" in output.out
    assert output.err.startswith("error: experiments/broken.yaml:1: broken YAML: ")


def test_schema_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == json_schema()
    assert main(["schema", "--reference"]) == 0
    assert capsys.readouterr().out == reference()


def test_schema_writes(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = checkout / "docs" / "reference" / "experiments.md"
    page.parent.mkdir(parents=True)
    begin = "<!-- made by `onionlab schema --write` from the models: do not edit -->"
    others = ("transfer-experiments.md", "tornettools-experiments.md")
    for one in (page, *map(page.with_name, others)):
        one.write_text(f"before\n{begin}\nOUTDATED\n<!-- end of the generated part -->\nafter\n")
    monkeypatch.setattr(schema_command, "working_root", lambda: checkout)
    assert main(["schema", "--write"]) == 0
    assert (checkout / "experiments" / "schema.json").read_text() == json_schema()
    assert (checkout / "experiments" / "peers.schema.json").read_text() == peers_json_schema()
    made = (checkout / "experiments" / "tornettools.schema.json").read_text()
    assert made == tornet_json_schema()
    assert "libtorrent.variants" in page.with_name(others[0]).read_text()
    assert "traffic.markov_clients" in page.with_name(others[1]).read_text()
    text = page.read_text()
    assert text.startswith(f"before\n{begin}\n\n### The file")
    assert text.endswith("<!-- end of the generated part -->\nafter\n")
    assert "OUTDATED" not in text
