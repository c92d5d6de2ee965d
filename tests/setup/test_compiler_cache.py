"""ccache is used if it is installed and has a folder for its files, and is never required."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from onionlab.programs import compiler_cache
from onionlab.programs.building import build_environment
from onionlab.programs.compiler_cache import cache_environment, through_cache


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home folder of a user without any settings."""
    for name in (*compiler_cache.USER_VARIABLES, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def cache_statistics() -> dict[str, int]:
    """Return ccache's counters."""
    result = subprocess.run(
        ["ccache", "--print-stats"],
        capture_output=True,
        text=True,
        check=True,
        env=build_environment(),
    )
    lines = (line.split() for line in result.stdout.splitlines())
    return {name: int(value) for name, value in lines}


def compile_object(folder: Path, source: str) -> bytes:
    folder.mkdir()
    (folder / "one.c").write_text(source)
    command = [*through_cache("gcc").split(), "-g", f"-ffile-prefix-map={folder}=."]
    subprocess.run(
        [*command, "-c", "one.c", "-o", "one.o"], cwd=folder, env=build_environment(), check=True
    )
    return (folder / "one.o").read_bytes()


def test_a_file_is_compiled_once_on_a_machine(home: Path, tmp_path: Path) -> None:
    source = "int one(void) { return 1; }\n"
    first = compile_object(tmp_path / "a", source)
    assert (home / ".cache/onionlab/ccache").is_dir()
    assert cache_statistics()["cache_miss"] == 1
    assert compile_object(tmp_path / "a-folder-with-another-name", source) == first
    assert compile_object(tmp_path / "c", source.replace("1", "2")) != first
    counters = cache_statistics()
    hits = counters["direct_cache_hit"] + counters["preprocessed_cache_hit"]
    assert (counters["cache_miss"], hits) == (2, 1)


def test_users_choices_of_a_place_count(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_environment()["CCACHE_DIR"] == str(tmp_path / "caches/onionlab/ccache")
    # By the XDG specification, relative paths have to be ignored.
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    assert cache_environment()["CCACHE_DIR"] == str(home / ".cache/onionlab/ccache")
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("CCACHE_MAXSIZE", "1G")
    environment = cache_environment()
    assert environment["CCACHE_DIR"] == str(tmp_path / "own")
    assert environment["CCACHE_MAXSIZE"] == "1G"


@pytest.mark.parametrize("lack", ["program", "place"])
def test_compilers_run_without_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    if lack == "program":
        monkeypatch.setattr(compiler_cache, "PROGRAM", "no-such-program")
    else:
        (home / ".cache").write_text("no folder")
    assert through_cache("gcc") == "gcc"
    assert cache_environment() == {}
    assert compile_object(tmp_path / "a", "int one;\n")
