"""The run store: each run under the hash of everything that determines it, whole or not there.

    runs/<id>/            a finished run: a tornettools-style prefix, manifest.json, records-*/
    runs/.partial/<id>/   a run that is being made, or was interrupted; never read
    runs/.partial/<id>-*/ one on its way here from another disk
    runs/.failed/<id>/    the last failed attempt, kept to be looked at, with error.json

A run directory enters the first level by one rename, after all of it was written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from analysis.formats import files
from analysis.formats.attempt import RunFailure
from analysis.formats.json_files import write_json
from analysis.formats.manifest import Manifest, write_manifest
from onionlab.runs.leases import lease, wait_for_lease


class Store:
    """The runs below one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, run_id: str) -> Path:
        """Where a finished run is."""
        return self.directory / run_id

    def manifest(self, run_id: str) -> Path:
        """The file whose presence says that a run is finished."""
        return self.run(run_id) / files.MANIFEST

    def partial(self, run_id: str) -> Path:
        """Where a run is made."""
        return self.directory / ".partial" / run_id

    def failed(self, run_id: str) -> Path:
        """Where the last failed attempt is."""
        return self.directory / ".failed" / run_id

    def is_finished(self, run_id: str) -> bool:
        """Whether the run is there, whole."""
        return self.manifest(run_id).exists()

    def finished_among(self, run_ids: Collection[str]) -> set[str]:
        """Which of these runs are there, whole.

        The store is listed once; what is not in the list is not asked for.
        """
        return {run_id for run_id in _listed(self.directory, run_ids) if self.is_finished(run_id)}

    def begun_among(self, run_ids: Collection[str]) -> set[str]:
        """Which of these runs are being made, or were interrupted."""
        return _listed(self.directory / ".partial", run_ids)

    def failed_among(self, run_ids: Collection[str]) -> set[str]:
        """Of which of these runs the last failed attempt is kept."""
        return _listed(self.directory / ".failed", run_ids)

    @contextlib.contextmanager
    def exclusive(self, run_id: str, *, everywhere: bool = False) -> Iterator[None]:
        """Hold a run's lock, which ends with the process however that ends; wait if it is taken.

        everywhere: also against machines where the file system's locks do not reach; whoever does
        without waits for those who have it.
        """
        locks = self.directory / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / run_id).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = locks / f"{run_id}.held"
            if everywhere:
                with lease(held):
                    yield
            else:
                wait_for_lease(held)
                yield

    def remove_unfinished(self, run_id: str) -> None:
        """Remove what is no run, however it came there: no manifest, or still on its way."""
        for way in (self.directory / ".partial").glob(f"{run_id}-*"):
            shutil.rmtree(way, ignore_errors=True)
        if not self.is_finished(run_id):
            shutil.rmtree(self.run(run_id), ignore_errors=True)

    def finish(self, run_id: str, manifest: Manifest, made: Path | None = None) -> None:
        """Make an attempt the finished run. made: where it was written, if not the partial one."""
        made = made or self.partial(run_id)
        (made / files.PROGRESS).unlink(missing_ok=True)
        write_manifest(made / files.MANIFEST, manifest)
        self._bring(made, self.run(run_id))
        shutil.rmtree(self.partial(run_id), ignore_errors=True)
        shutil.rmtree(self.failed(run_id), ignore_errors=True)

    def fail(self, run_id: str, error: RunFailure, made: Path | None = None) -> None:
        """Keep what there is of a failed run, with the reason, in an earlier failure's place."""
        made, failed = made or self.partial(run_id), self.failed(run_id)
        made.mkdir(parents=True, exist_ok=True)
        try:
            write_json(made / files.ERROR, error.content())
        except OSError:
            # Of a full disk it takes no more than the progress, which is of no use any more.
            (made / files.PROGRESS).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                write_json(made / files.ERROR, error.content())
        shutil.rmtree(failed, ignore_errors=True)
        failed.parent.mkdir(parents=True, exist_ok=True)
        self._bring(made, failed)
        shutil.rmtree(self.partial(run_id), ignore_errors=True)

    def kept_of_failed(self, run_id: str, log: Iterable[str]) -> str:
        """For an error: where the last failed attempt is, and the last lines of its log, if any."""
        place = self.failed(run_id)
        if place.is_relative_to(Path.cwd()):
            place = place.relative_to(Path.cwd())
        words = "".join(f"\n  {line[:300]}" for line in log)
        return f"all it left is kept in {place}{'; its last words:' if words else ''}{words}"

    def _bring(self, made: Path, to: Path) -> None:
        """Let a directory be there under another name, whole at once, also from another disk."""
        try:
            made.rename(to)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            way = self.directory / ".partial" / f"{to.name}-{uuid.uuid4().hex}"
            try:
                shutil.copytree(made, way, symlinks=True)
                way.rename(to)
            finally:
                shutil.rmtree(way, ignore_errors=True)


def _listed(folder: Path, names: Collection[str]) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}.intersection(names)
    except FileNotFoundError:
        return set()
