"""Folders for what is being written: none is left, whoever is killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from analysis.formats.scratch import scratch_folder
from analysis.formats.tables import atomic
from analysis.pages.html import replaced

REPOSITORY = Path(__file__).resolve().parents[2]


def writer(code: str, out: Path) -> subprocess.Popen[str]:
    """A program of its own that has opened a scratch folder in ``out`` and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


RECORDS = """
import sys
from pathlib import Path
from analysis.formats.tables import atomic
with atomic(Path(sys.argv[1])) as folder:
    (folder / "streams.parquet").write_text("half")
    print("open", flush=True)
    sys.stdin.read()
"""

REPORT = """
import sys
from pathlib import Path
from analysis.pages.html import replaced
with replaced(Path(sys.argv[1]), ["report.html"]) as folder:
    (folder / "report.html").write_text("half")
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("code", "name"), [(RECORDS, "parse.json"), (REPORT, "report.html")])
def test_what_a_killed_writer_left_goes_with_the_next_one(
    tmp_path: Path, code: str, name: str
) -> None:
    killed = writer(code, tmp_path)
    killed.kill()
    killed.communicate()
    assert len(list(tmp_path.iterdir())) == 1
    with atomic(tmp_path) if name == "parse.json" else replaced(tmp_path, [name]) as folder:
        (folder / name).write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_in_which_somebody_writes_stays(tmp_path: Path) -> None:
    other = writer(RECORDS, tmp_path)
    (theirs,) = tmp_path.iterdir()
    with scratch_folder(tmp_path, ".extract-") as ours:
        assert ours != theirs
        assert sorted(tmp_path.iterdir()) == sorted([ours, theirs])
    assert list(tmp_path.iterdir()) == [theirs]
    other.communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["streams.parquet"]
