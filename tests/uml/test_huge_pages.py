"""A guest's memory uses huge pages if the machine allows it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onionlab.engines.base import Progress
from onionlab.engines.uml import huge_pages
from onionlab.engines.uml.engine import LOG, UmlEngine
from onionlab.engines.uml.examine import explain_missing_huge_pages
from onionlab.engines.uml.huge_pages import REFUSED
from uml.guest_support import Net, processes_in, run_guest

SCRIPT = Path(huge_pages.__file__)
SIZE_BYTES = 64 * 2**20
NOBODY = 65534
SHOW = 'id -u; grep " $TMPDIR " /proc/self/mountinfo | tail -n 1; touch "$TMPDIR/there"; exit 3'


def run_in(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run the script SHOW with a command. The default command mounts a tmpfs with huge pages."""
    return subprocess.run(
        [*(command or huge_pages.command(SIZE_BYTES)), "sh", "-c", SHOW],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module", autouse=True)
def require_huge_pages(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the tests if this machine does not allow huge pages."""
    folder = tmp_path_factory.mktemp("granted")
    output = run_in(folder).stdout
    if REFUSED in output:
        pytest.skip(f"needs a mount namespace and huge pages: {output.splitlines()[0]}")


def test_the_command_has_a_private_tmpfs(tmp_path: Path) -> None:
    done = run_in(tmp_path)
    user, mounted = done.stdout.splitlines()
    assert done.returncode == 3
    assert user == str(os.geteuid())
    assert re.search(r" - tmpfs tmpfs .*size=65536k.*huge=within_size", mounted)
    assert not (tmp_path / "there").exists(), "other processes see it"
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Yield a folder that every user may read, unlike pytest's folders."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_than_root(public_folder: Path) -> None:
    allowed = run_in(Path("/"), *AS_NOBODY, "unshare", "--user", "--mount", "true")
    if allowed.returncode:
        pytest.skip(f"needs user namespaces for all users: {allowed.stderr.strip()}")
    # Other users may be unable to read this environment's interpreter, so use the system's Python.
    script, folder = shutil.copy2(SCRIPT, public_folder), Path("/dev/shm")
    python = ("/usr/bin/python3", "-I", "-S")
    done = run_in(folder, *AS_NOBODY, *python, str(script), str(SIZE_BYTES))
    assert done.returncode == 3, done.stderr
    user, mounted = done.stdout.splitlines()
    assert user == str(NOBODY)
    assert "huge=within_size" in mounted
    assert not (folder / "there").exists()


def test_the_command_runs_without_huge_pages_if_they_are_not_allowed(tmp_path: Path) -> None:
    because = "mount: No such file or directory"
    done = run_in(tmp_path / "nowhere")
    assert done.returncode == 3
    assert done.stdout.splitlines()[0].startswith(f"{REFUSED}: {because}")
    # `doctor` prints the reason.
    assert explain_missing_huge_pages(tmp_path / "nowhere") == because
    assert explain_missing_huge_pages(tmp_path) == ""


@pytest.mark.uml
def test_the_memory_of_a_guest_uses_huge_pages(tmp_path: Path, uml_engine: UmlEngine) -> None:
    huge_bytes = 0

    def look(progress: Progress) -> None:
        nonlocal huge_bytes
        for process in processes_in(tmp_path):
            with contextlib.suppress(OSError):
                memory = Path(f"/proc/{process}/smaps_rollup").read_text()
                found = re.search(r"^ShmemPmdMapped: +(\d+) kB", memory, re.M)
                huge_bytes = max(huge_bytes, int(found[1]) * 1024 if found else 0)

    net = Net()
    net.host("a")
    net.run("a", "facts")
    run_guest(tmp_path, uml_engine, net, stop_s=20, on_progress=look)
    assert REFUSED not in (tmp_path / LOG).read_text()
    assert huge_bytes >= 2**24
