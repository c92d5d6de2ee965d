"""The run store: each run under the hash of everything that determines it, whole or not there.

    runs/<id>/            a finished run: a tornettools-style prefix, manifest.json, records-*/
    runs/.partial/<id>/   a run that is being made, or was interrupted; never read
    runs/.failed/<id>/    the last failed attempt, kept to be looked at, with error.json

A run directory enters the first level by one rename, after all of it was written.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
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
        """Remove a directory without a manifest: it is no run, however it came there."""
        if not self.is_finished(run_id):
            shutil.rmtree(self.run(run_id), ignore_errors=True)

    def finish(self, run_id: str, manifest: Manifest) -> None:
        """Make the partial run the finished one."""
        partial = self.partial(run_id)
        (partial / files.PROGRESS).unlink(missing_ok=True)
        write_manifest(partial / files.MANIFEST, manifest)
        partial.rename(self.run(run_id))
        shutil.rmtree(self.failed(run_id), ignore_errors=True)

    def fail(self, run_id: str, error: RunFailure) -> None:
        """Keep what there is of a failed run, with the reason, in an earlier failure's place."""
        partial, failed = self.partial(run_id), self.failed(run_id)
        partial.mkdir(parents=True, exist_ok=True)
        try:
            write_json(partial / files.ERROR, error.content())
        except OSError:
            # Of a full disk it takes no more than the progress, which is of no use any more.
            (partial / files.PROGRESS).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                write_json(partial / files.ERROR, error.content())
        shutil.rmtree(failed, ignore_errors=True)
        failed.parent.mkdir(parents=True, exist_ok=True)
        partial.rename(failed)
