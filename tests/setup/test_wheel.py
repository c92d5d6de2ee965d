"""A wheel of this tree, installed far from any checkout, does what needs no build of Tor."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from harness.whole_runs import write_records
from shipped import EXPERIMENTS, is_own_experiment

from analysis.formats.files import RECORDS
from analysis.formats.manifest import Manifest, identity_hash, write_manifest
from onionlab import __version__
from onionlab.runs.packing import pack
from onionlab.runs.store import Store

REPOSITORY = Path(__file__).resolve().parents[2]
PACK = REPOSITORY / "docs" / "runs" / "starvation-seed-3-uml.tar.xz"
CARRIED = ("configs", "experiments", "libtorrent-patches", "tor-patches")
FILES = (
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "requirements.in",
    "requirements.lock",
    "setup.py",
)

OWN = [path.name for path in (REPOSITORY / "experiments").glob("*") if is_own_experiment(path)]
"""Somebody's own experiments, which may be half written."""

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that sees nothing of this checkout."""
    clean = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # In a copy: setuptools makes build/ and *.egg-info beside the source.
    source = tmp_path_factory.mktemp("source")
    for folder in ("analysis", "onionlab", *CARRIED):
        ignored = shutil.ignore_patterns("__pycache__", *OWN)
        shutil.copytree(REPOSITORY / folder, source / folder, ignore=ignored)
    for file in FILES:
        shutil.copyfile(REPOSITORY / file, source / file)
    out = tmp_path_factory.mktemp("wheels")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    how = ("--quiet", "--no-build-isolation", "--no-deps", "--no-index")
    run(*pip, "wheel", *how, "--wheel-dir", out, ".", cwd=source)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and the packages that it depends on as they are here."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    paths = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    # Paths alone: what is installed here in editable mode stays out of sight.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    python = folder / "bin" / "python"
    run(
        *pip, "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder
    )
    return folder


@pytest.fixture
def onionlab(environment: Path) -> Path:
    return environment / "bin" / "onionlab"


def test_a_wheel_holds_every_module_and_all_that_is_shipped(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    code = [
        path.relative_to(REPOSITORY).as_posix()
        for package in ("analysis", "onionlab")
        for path in (REPOSITORY / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    shipped = [
        f"onionlab/share/{path.relative_to(REPOSITORY).as_posix()}"
        for folder in CARRIED
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and path.name not in OWN
    ]
    # It sets a checkout up.
    assert set(code) - held == {"onionlab/setup.sh"}
    assert set(shipped) <= held
    assert not any(name.startswith("tests/") for name in held)


def test_the_version_stands_in_one_place(onionlab: Path, wheel: Path, tmp_path: Path) -> None:
    assert run(onionlab, "--version", cwd=tmp_path) == f"onionlab {__version__}\n"
    assert wheel.name.startswith(f"onionlab-{__version__}-")


def test_experiments_are_listed_ones_own_beside_the_shipped(onionlab: Path, tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    mine = "extends: quick.yaml\ntitle: My own\nnetworks: 2\n"
    (tmp_path / "experiments" / "mine.yaml").write_text(mine)
    listed = run(onionlab, "list", cwd=tmp_path)
    assert "  mine  " in listed
    assert "My own (6 runs)" in listed
    for name in EXPERIMENTS:
        assert f"  {name}  " in listed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["experiments"]


def test_published_runs_answer_the_claims(
    onionlab: Path, environment: Path, tmp_path: Path
) -> None:
    before = sorted(environment.rglob("share/**/*"))
    command = (onionlab, "figures", "--claims", "starvation", "--from", PACK)
    said = run(*command, cwd=tmp_path).splitlines()
    page = tmp_path / "results" / "figures-starvation" / "figures.html"
    assert said[-1] == str(page)
    assert "<svg" in page.read_text() or "<img" in page.read_text()
    with (page.parent / "claims.csv").open(newline="") as rows:
        assert len(list(csv.DictReader(rows))) >= 9
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert sorted(environment.rglob("share/**/*")) == before


def test_runs_of_a_pack_are_taken(onionlab: Path, tmp_path: Path) -> None:
    made, run_id = Store(tmp_path / "made"), identity_hash({})
    write_records(made.run(run_id) / RECORDS, "server1")
    write_manifest(made.manifest(run_id), Manifest(run_id=run_id))
    pack(made, [run_id], tmp_path / "runs.tar.xz", logs=False, say=print)
    assert "1 runs are new" in run(onionlab, "unpack", "runs.tar.xz", cwd=tmp_path)
    assert (tmp_path / "runs" / run_id / RECORDS).is_dir()
