"""Names and options of any length and kind give one line with the error, and no traceback."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from onionlab import paths
from onionlab.cli import main
from onionlab.commands import compare as compare_command
from onionlab.commands import pack as pack_command
from onionlab.commands._arguments import listed_files
from onionlab.errors import UserError
from onionlab.experiment.nightly_list import read_nightly_list

LONG = "a" * 300
DIGITS = "9" * 5000


def first_error_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run the program, require the exit status 2, and return the only line with "error: "."""
    try:
        status = main(words)
    except SystemExit as ended:  # argparse ends like this
        status = int(ended.code or 0)
    assert status == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "nothing"], "found no results of nothing"),
        (["run-one", "--plan", "/nowhere/plan.json", "--run", "0"], "is not a plan"),
        (["report", LONG], "is not the name of an experiment"),
        (["pack", "figures-swrr-limits"], "found no runs of figures-swrr-limits"),
        (["pack", ".."], '".." is not the name of an experiment'),
        (["pack", ""], '"" is not the name of an experiment'),
        (["run", LONG], "no experiment called"),
        (["experiment", f"./{LONG}.yaml"], "no experiment file"),
        (["estimate", "quick", "--scale", DIGITS], "--scale: expected a number such as 0.1"),
        (["estimate", "quick", "--seeds", DIGITS], "NETWORKS: expected a number of networks"),
        (["compare", LONG, "quick"], "found no runs of"),
        (["compare", f"quick:{LONG}", "quick"], "found no runs of quick"),
        (["compare", f"{LONG}.tar.xz", "quick"], "there is no "),
        (["figures", "--claims", LONG], "no claims called"),
        (["figures", "--claims", f"{LONG}.yaml"], "no file of claims"),
        (["unpack", LONG], "there is no "),
        (["nightly", "--config", LONG], "cannot be read: File name too long"),
        (["analyse", "--run-directory", LONG], "File name too long"),
        (["build", LONG], "unknown variant"),
        (["import", "--name", LONG, "."], "is not a valid name for a set"),
        (["import", "--name", "x", LONG], "File name too long"),
        (["import", "--name", "x", "--start", "nan", "."], "number of seconds value: 'nan'"),
        (["import", "--name", "x", "--start=9", "--end=9", "."], "--start 9 is not before --end 9"),
        (["import-consensus", "--name", LONG, "."], "is not a valid name for a distribution"),
        (["import-network", "--name", "x", LONG], " not found"),
        (["run", "quick", "--scale", "nan"], "--scale: expected a number such as 0.1"),
        (["run", "quick", "--jobs", DIGITS], "--jobs: expected a whole number"),
        (["experiment", "quick", "--max-networks", DIGITS], "--max-networks: expected"),
        (["run", "quick", "--networks", "9", "--seeds", "5"], "given 9 and 5; leave one out"),
        (["generate-network", "--networks", "9", "--seeds", "5"], "given 9 and 5; leave one out"),
        (["build", "--jobs", "0"], "--jobs: expected a whole number of at least 1, got '0'"),
        (["compare", "a", "b", "--out", "/dev/null"], "/dev/null is not a folder"),
        (["compare", "a", "b", "--out", "/dev/null/x"], "/dev/null is not a folder"),
        (["report", "\udcff"], r"an argument is not text in UTF-8: '\udcff'"),
    ],
)
def test_impossible_arguments_give_a_one_line_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    # The checkout of the tests may have results of `quick`, which `compare` would find.
    monkeypatch.setattr(compare_command, "working_root", lambda: tmp_path)
    assert message in first_error_line(words, capsys)


def test_a_file_that_is_not_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pack_command, "working_root", lambda: tmp_path)
    (tmp_path / "results" / "quick").mkdir(parents=True)
    (tmp_path / "results" / "quick" / "plan.json").write_text("{}")
    words = ["pack", "quick", "--out", str(tmp_path / "x.tar.xz")]
    assert "is not a plan" in first_error_line(words, capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "{b: " * 60 + "}" * 60, "nested too deeply"),
        ("\n".join(" " * depth + "a:" for depth in range(600)), "nested too deeply"),
        (f"experiments:\n- {{name: quick, seeds: {DIGITS}}}", "expected a number of networks"),
        (f"experiments:\n- {{name: quick, seeds: [{DIGITS}]}}", "expected a number of networks"),
        (f"nights_per_year: {DIGITS}", "expected a whole number"),
        ("experiments: [" + "1," * 25_000 + "]", "25001 values are wrong or missing"),
        ("experiments:\n" + "- {name: quick}\n" * 12_000, "100 things are wrong"),
        ("experiments:\n" + "- {nmae: quick}\n" * 12_000, "24001 values are wrong or missing"),
        ("".join(f"k{number}:\n" for number in range(30_000)), "30001 values are wrong or missing"),
        (f"{'k' * 900}: 1", r" k{57}\.\.\.: unknown key; the keys here are"),
        ("# " + "x" * 2**18, "expected at most 256 KiB, the limit for files of this kind"),
    ],
)
def test_a_nightly_list_of_any_depth_and_length(tmp_path: Path, text: str, message: str) -> None:
    """Reading takes only seconds, because its time does not grow with the square of the length."""
    path = tmp_path / "nightly.yaml"
    path.write_text(text)
    begun = time.process_time()
    with pytest.raises(UserError, match=message) as refused:
        read_nightly_list(path, root=tmp_path)
    assert time.process_time() - begun < 20
    assert max(map(len, refused.value.message.splitlines())) < 500
    assert len(refused.value.message) < 50_000


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "missing"])
def test_a_name_that_no_file_can_have_is_not_a_file(tmp_path: Path, name: str) -> None:
    assert not paths.is_file(tmp_path / name)
    assert not paths.is_folder(tmp_path / name)


def test_files_that_make_names_in_one_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.tar.xz", "b.tar.xz", "my runs.tar.xz", "a.tar.xz of May"):
        Path(name).touch()
    for text, names in {
        "a.tar.xz b.tar.xz": ["a.tar.xz", "b.tar.xz"],
        "my runs.tar.xz": ["my runs.tar.xz"],
        "'my runs.tar.xz' a.tar.xz": ["my runs.tar.xz", "a.tar.xz"],
        "a.tar.xz gone.tar.xz": ["a.tar.xz", "gone.tar.xz"],
        "a.tar.xz of May": ["a.tar.xz of May"],
        "of mine.tar.xz": ["of mine.tar.xz"],
        'a.tar.xz "': ['a.tar.xz "'],
        f"{LONG} x": [f"{LONG} x"],
    }.items():
        assert listed_files([text]) == [Path(name) for name in names]
    names = ["a.tar.xz", "b.tar.xz", "b.tar.xz"]
    assert listed_files(["a.tar.xz", "b.tar.xz b.tar.xz"]) == [Path(name) for name in names]
