"""Incomplete files never replace whole ones. A later writer removes a killed writer's files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.comparison.history import read_history, write_history
from analysis.formats.durable import sync, whole_file, write_whole
from analysis.formats.manifest import Manifest
from analysis.formats.scratch import scratch_folder
from analysis.formats.tables import atomic
from analysis.pages.html import replaced
from onionlab.runs.packing import pack
from onionlab.runs.store import Store

REPOSITORY = Path(__file__).resolve().parents[2]


def writer(code: str, out: Path) -> subprocess.Popen[str]:
    """Start the program ``code`` with ``out``. Return it when it has begun to write and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def half_written(module: str, opening: str, name: str) -> str:
    """Return a program that opens ``opening`` of ``module``, writes half of a file, and waits.

    opening: a call of a context manager. name: the file to write if this manager yields a folder.
    """
    return f"""
import sys
from pathlib import Path
from {module} import {opening.partition("(")[0]}
with {opening} as place:
    (place / "{name}" if place.is_dir() else place).write_text("half")
    print("open", flush=True)
    sys.stdin.read()
"""


RECORDS = half_written("analysis.formats.tables", "atomic(Path(sys.argv[1]))", "streams.parquet")
REPORT = half_written("analysis.pages.html", "replaced(Path(sys.argv[1]))", "report.html")
ONE_FILE = half_written(
    "analysis.formats.durable", 'whole_file(Path(sys.argv[1]) / "history.parquet")', ""
)


@pytest.mark.parametrize(
    ("code", "name"),
    [(RECORDS, "streams.parquet"), (REPORT, "report.html"), (ONE_FILE, "history.parquet")],
)
def test_the_next_writer_removes_files_of_a_killed_one(
    tmp_path: Path, code: str, name: str
) -> None:
    killed = writer(code, tmp_path)
    killed.kill()
    killed.communicate()
    (left,) = tmp_path.iterdir()
    assert left.name != name
    writer(code, tmp_path).communicate()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_second_writer_of_a_file_waits_for_the_first(tmp_path: Path) -> None:
    first = writer(ONE_FILE, tmp_path)
    file = tmp_path / "history.parquet"
    second = threading.Thread(target=write_whole, args=(file, "second"))
    second.start()
    second.join(0.1)
    assert second.is_alive()
    first.communicate()
    second.join(10)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["second"]


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_whole(file, "before")

    def write_half() -> None:
        with whole_file(file) as part:
            part.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


class Disk:
    """Records the synced content. After a power failure, only this content is sure to be on disk.

    File names may reach the disk at any time. So a name must not appear before its content is
    synced, and a name that was not synced may be lost.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[int, bytes | dict[str, int]] = {}
        self.folder = folder
        rename = os.replace

        def fsync(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            self.synced[path.stat().st_ino] = self.now(path)

        def replace(source: Path, target: Path) -> None:
            rename(source, target)
            for path in (target, *target.rglob("*")):
                assert self.synced.get(path.stat().st_ino) == self.now(path), path

        monkeypatch.setattr("analysis.formats.durable.os.fsync", fsync)
        monkeypatch.setattr("os.replace", replace)
        monkeypatch.setattr("os.rename", replace)
        sync(folder)

    def now(self, path: Path) -> bytes | dict[str, int]:
        if path.is_dir():
            return {entry.name: entry.stat().st_ino for entry in path.glob("[!.]*")}
        return path.read_bytes()

    def require(self, path: Path) -> None:
        """Fail if a power failure would lose a part of the file or folder."""
        for one in (path, *path.rglob("*")):
            assert self.synced[one.stat().st_ino] == self.now(one)
        for one in (path, *path.parents):
            if one == self.folder:
                return
            names = self.synced[one.parent.stat().st_ino]
            assert isinstance(names, dict)
            assert names[one.name] == one.stat().st_ino


def finish_run(root: Path) -> Path:
    store = Store(root / "runs")
    with store.exclusive("ab"):
        logs = store.partial("ab") / "shadow.data" / "hosts" / "relay1"
        logs.mkdir(parents=True)
        (logs / "tor.1000.stdout").write_text("log")
        store.finish("ab", Manifest(run_id="ab"))
    return store.run("ab")


def write_records(root: Path) -> Path:
    out = root / "run" / "records-v1"
    with atomic(out) as folder:
        (folder / "streams.parquet").write_text("table")
        (folder / "parse.json").write_text("{}")
    return out


def write_page(root: Path) -> Path:
    with replaced(root) as folder:
        (folder / "figures").mkdir()
        (folder / "figures" / "a.pdf").write_text("figure")
    return root / "figures"


def write_history_of_nights(root: Path) -> Path:
    history = root / "nightly" / "history.parquet"
    write_history(history, read_history(history))
    return history


def write_pack(root: Path) -> Path:
    pack(Store(root / "runs"), [finish_run(root).name], root / "a.xz", logs=True)
    return root / "a.xz"


@pytest.mark.parametrize(
    "write", [finish_run, write_records, write_page, write_history_of_nights, write_pack]
)
def test_a_power_failure_does_not_damage_finished_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], Path]
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    disk.require(write(tmp_path))


def test_a_folder_in_use_is_not_removed(tmp_path: Path) -> None:
    other = writer(RECORDS, tmp_path)
    (theirs,) = tmp_path.iterdir()
    with scratch_folder(tmp_path, ".extract-") as ours:
        assert ours != theirs
        assert sorted(tmp_path.iterdir()) == sorted([ours, theirs])
    assert list(tmp_path.iterdir()) == [theirs]
    other.communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["streams.parquet"]
