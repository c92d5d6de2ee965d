"""Finding Shadow and TGen, which are scripts on a temporary PATH."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from shell_scripts import write_script

from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.errors import UserError
from onionlab.programs import installed as tools
from onionlab.programs.installed import SHADOW, TGEN, Program, Tool, find_tool

SHADOW_SAYS = "Shadow 3.3.0 — v3.3.0-199-gf1b2cacf2 2026-08-19--09:03:14"
TGEN_SAYS = (
    "2026-11-21 01:17:52 1795223872.048204 [message] [tgen-main.c:43] [_tgenmain_run] "
    "Initializing TGen v1.1.2 running GLib v2.74.6 and IGraph v0.10.2 on host vm"
)


def write_tool(path: Path, says: str, *, status: int = 0) -> Path:
    return write_script(path, f"echo '{says}'\nexit {status}\n")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(autouse=True)
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on the PATH, which is empty. SHADOW and TGEN are unset."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("SHADOW", raising=False)
    monkeypatch.delenv("TGEN", raising=False)
    return folder


def test_shared_libraries_of_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    libraries = tools.shared_libraries(Path("/bin/sh"))
    maps = Path("/proc/self/maps").read_text().split()
    libc = next(Path(word) for word in maps if word.endswith("/libc.so.6"))
    assert libraries["libc.so.6"] == sha256(libc)
    assert tools.shared_libraries(write_tool(tmp_path / "script", "")) == {}


@pytest.mark.parametrize(("flags", "found"), [("fpu aes avx", True), ("fpu vaes avx", False)])
def test_a_processor_with_instructions_for_aes(
    monkeypatch: pytest.MonkeyPatch, flags: str, found: bool
) -> None:
    cpuinfo = f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: aes\n"
    monkeypatch.setattr(Path, "read_text", lambda path: cpuinfo)
    assert tools.has_aes() is found


@pytest.mark.parametrize(
    ("program", "says", "version", "commit"),
    [
        (SHADOW, SHADOW_SAYS, "3.3.0", "f1b2cacf2"),
        (SHADOW, "Shadow 3.3.0 — v3.3.0-199-gf1b2cacf2-dirty x", "3.3.0", "f1b2cacf2-dirty"),
        (SHADOW, "Shadow 3.3.0 — v3.3.0 2025-10-16", "3.3.0", None),
        (SHADOW, "warning: x\nShadow 3.3.0-pre", "3.3.0", None),
        (TGEN, TGEN_SAYS, "1.1.2", None),
        (TGEN, "Initializing TGen v1.1.2-4-g1b2c3d4 running", "1.1.2", "1b2c3d4"),
    ],
)
def test_a_program_on_the_path(
    path_folder: Path, program: Program, says: str, version: str, commit: str | None
) -> None:
    # TGen prints its version and then exits with an error, because it has no graph.
    path = write_tool(path_folder / program.name, says, status=1 if program is TGEN else 0)
    assert find_tool(program) == Tool(path, version, commit, sha256(path))


@pytest.mark.parametrize("rebuilt", ["bin/shadow", "bin/tgen", "lib/libshadow_shim.so"])
def test_another_build_of_the_same_commit_is_another_engine(tmp_path: Path, rebuilt: str) -> None:
    write_tool(tmp_path / "bin/shadow", SHADOW_SAYS)
    write_tool(tmp_path / "bin/tgen", TGEN_SAYS)
    write_tool(tmp_path / "lib/libshadow_shim.so", "")

    def identity() -> dict[str, str]:
        programs = {name: str(tmp_path / "bin" / name) for name in ("shadow", "tgen")}
        return ShadowEngine(**programs).identity

    before = identity()
    assert identity() == before
    with (tmp_path / rebuilt).open("a") as file:
        file.write("# built with other options\n")
    assert identity() != before


def test_the_option_precedes_the_variable_and_the_path(
    path_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = write_tool(path_folder / "shadow", SHADOW_SAYS)
    variable = write_tool(tmp_path / "a/shadow", SHADOW_SAYS)
    named = write_tool(tmp_path / "b/shadow-of-mine", SHADOW_SAYS)
    assert find_tool(SHADOW, "").path == on_path
    monkeypatch.setenv("SHADOW", str(variable))
    assert find_tool(SHADOW).path == variable
    assert find_tool(SHADOW, str(named)).path == named
    monkeypatch.setenv("SHADOW", "")
    assert find_tool(SHADOW).path == on_path


@pytest.mark.parametrize(
    ("program", "minimum"), [(SHADOW, "Shadow 3.0.0 or newer"), (TGEN, "TGen 1.1.2 or newer")]
)
def test_a_missing_tool_names_version_page_and_way_out(program: Program, minimum: str) -> None:
    with pytest.raises(UserError) as caught:
        find_tool(program)
    assert caught.value.message == (
        f"{program.title} is not installed: no `{program.name}` on the PATH"
    )
    hint = caught.value.hint or ""
    assert minimum in hint
    assert program.documentation in hint
    assert f"{program.variable}=/path/to/{program.name}" in hint


@pytest.mark.parametrize(
    ("version", "fits"),
    [("2.9.9", False), ("3.0.0", True), ("3.10.1", True), ("10.0.0", True), ("3.0", False)],
)
def test_shadow_versions(path_folder: Path, version: str, fits: bool) -> None:
    write_tool(path_folder / "shadow", f"Shadow {version}")
    if fits:
        assert find_tool(SHADOW).version == version
    else:
        with pytest.raises(UserError, match=rf"Shadow {version} at .* is too old: 3\.0\.0"):
            find_tool(SHADOW)


@pytest.mark.parametrize("says", ["something else", "not Shadow 3.3.0", "Shadow", ""])
def test_a_program_that_is_something_else(path_folder: Path, says: str) -> None:
    write_tool(path_folder / "shadow", says, status=3)
    with pytest.raises(UserError, match=f"does not answer like Shadow: {says}"):
        find_tool(SHADOW)


def test_a_space_in_the_path_of_shadow(tmp_path: Path) -> None:
    path = write_tool(tmp_path / "my tools/shadow", SHADOW_SAYS)
    with pytest.raises(UserError, match="contains a space"):
        find_tool(SHADOW, str(path))
    write_tool(tmp_path / "my tools/tgen", TGEN_SAYS)
    assert find_tool(TGEN, str(tmp_path / "my tools/tgen")).version == "1.1.2"
