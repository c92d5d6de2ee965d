"""No test touches the runs and results of whoever starts it, nor what is in build/ beside builds.

What stands there is looked at before the first test and after the last one: the names, sizes and
times of the upper levels, where everything that the harness writes or removes leaves its trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
GUARDED = ("runs", "results")
FINISHED_BUILDS = ("keys", "libtorrent", "tor", "uml")
"""In ``build/``, what tests take and add to."""
LEVELS = 3

Seen = dict[str, tuple[int, int]]
BEFORE = pytest.StashKey[Seen]()
CHANGED = pytest.StashKey[list[str]]()


def seen(root: Path) -> Seen:
    """Size and time of change, in ns, of what stands in the upper levels of the guarded folders."""

    def below(folder: Path, levels: int) -> Iterator[Path]:
        yield folder
        if levels and folder.is_dir() and not folder.is_symlink():
            for path in sorted(folder.iterdir()):
                yield from below(path, levels - 1)

    build = root / "build"
    in_build = [path for path in build.glob("*") if path.name not in FINISHED_BUILDS]
    found: Seen = {}
    for place in (*(root / name for name in GUARDED), *in_build):
        for path in below(place, LEVELS):
            try:
                status = path.lstat()
            except OSError:
                continue
            found[path.relative_to(root).as_posix()] = (status.st_size, status.st_mtime_ns)
    return found


def changes(before: Seen, after: Seen) -> list[str]:
    """The places that are new, gone or different."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Look before the first test."""
    if not _is_worker(session.config):
        session.config.stash[BEFORE] = seen(REPOSITORY)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look after the last test; a change fails the run."""
    if _is_worker(session.config):
        return
    changed = changes(session.config.stash[BEFORE], seen(REPOSITORY))
    session.config.stash[CHANGED] = changed
    if changed and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what changed."""
    changed = config.stash.get(CHANGED, [])
    if not changed:
        return
    terminalreporter.section("runs/, results/ or build/ changed", red=True)
    terminalreporter.write_line(
        "Tests work in roots of their own (tests/harness/checkout.py). If no experiment was run "
        "here meanwhile, one of them wrote to, or removed:"
    )
    for name in changed[:20]:
        terminalreporter.write_line(f"  {name}")
