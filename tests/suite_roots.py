"""Check that tests do not change runs/, results/ or build/, except that they may add builds.

The names, sizes and modification times in the upper levels of these folders are compared before the
first test and after the last one. Whatever the harness writes or removes changes one of these.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
GUARDED = ("runs", "results")
FINISHED_BUILDS = ("arti", "keys", "libtorrent", "tor", "uml")
"""Folders in ``build/`` that are not compared, because tests use their builds and add builds."""
LEVELS = ("*", "*/*", "*/*/*")

Seen = dict[str, tuple[int, int]]
BEFORE = pytest.StashKey[Seen]()
CHANGED = pytest.StashKey[list[str]]()


def snapshot(root: Path) -> Seen:
    """Return size and modification time (ns) of entries in the guarded folders' upper levels."""

    in_build = [path for path in root.glob("build/*") if path.name not in FINISHED_BUILDS]
    found: Seen = {}
    for place in (*(root / name for name in GUARDED), *in_build):
        for path in (place, *(path for pattern in LEVELS for path in place.glob(pattern))):
            with contextlib.suppress(OSError):
                status = path.lstat()
                found[path.relative_to(root).as_posix()] = (status.st_size, status.st_mtime_ns)
    return found


def changes(before: Seen, after: Seen) -> list[str]:
    """Return the entries that were added, removed or changed."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Record the state before the first test."""
    if not _is_worker(session.config):
        session.config.stash[BEFORE] = snapshot(REPOSITORY)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the last test, compare the state with the recorded one. A change fails the session."""
    if _is_worker(session.config):
        return
    changed = changes(session.config.stash[BEFORE], snapshot(REPOSITORY))
    session.config.stash[CHANGED] = changed
    if changed and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the changes."""
    changed = config.stash.get(CHANGED, [])
    if not changed:
        return
    terminalreporter.section("runs/, results/ or build/ changed", red=True)
    terminalreporter.write_line(
        "Tests use separate roots (tests/harness/checkout.py). If no experiment was run "
        "here meanwhile, one of them wrote to, or removed:"
    )
    for name in changed[:20]:
        terminalreporter.write_line(f"  {name}")
