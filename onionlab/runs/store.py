"""The run store, in which the name of a run is the hash of everything that determines the run.

    runs/<id>/            a finished run: manifest.json, records-*/, and the files of the simulation
                          with the names that tornettools expects
    runs/.partial/<id>/   a run in progress or interrupted; only its progress file is read
    runs/.partial/<id>-*/ an incomplete copy of a run that is being moved from another disk
    runs/.failed/<id>/    the last failed attempt, with error.json

One rename moves a run to runs/<id>/ after all of it has been written, so an interrupted command
leaves no incomplete run there.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from analysis.formats import files
from analysis.formats.attempt import RunFailure
from analysis.formats.durable import make_folder, put_in_place
from analysis.formats.json_files import write_json
from analysis.formats.manifest import Manifest, is_whole, log_sizes, write_manifest
from analysis.formats.record_files import has_cut_files
from onionlab.errors import UserError
from onionlab.locks import file_lock, is_locked

LOG = logging.getLogger(__name__)
POLL_S = 1.0


class Store:
    """The runs below one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, run_id: str) -> Path:
        """Return the folder of a finished run."""
        return self.directory / run_id

    def manifest(self, run_id: str) -> Path:
        """Return the path of a run's manifest."""
        return self.run(run_id) / files.MANIFEST

    def partial(self, run_id: str) -> Path:
        """Return the folder in which a run in progress writes its files."""
        return self.directory / ".partial" / run_id

    def failed(self, run_id: str) -> Path:
        """Return the folder of the last failed attempt at a run."""
        return self.directory / ".failed" / run_id

    def is_finished(self, run_id: str) -> bool:
        """Return whether the run is in the store and none of its logs is damaged.

        A run from a pack without logs counts as finished.
        """
        return is_whole(self.run(run_id))

    def finished_among(self, run_ids: Collection[str]) -> set[str]:
        """Return the runs that are finished. For speed, this looks only at folders that exist."""
        return {run_id for run_id in _listed(self.directory, run_ids) if self.is_finished(run_id)}

    def extracted_among(self, run_ids: Collection[str]) -> set[str]:
        """Return the runs that are finished and have their records."""
        finished = self.finished_among(run_ids)
        return {run_id for run_id in finished if self.has_records(run_id)}

    def has_records(self, run_id: str) -> bool:
        """Return whether a run has all records. The file PARSE_REPORT is the last to be written."""
        return (self.run(run_id) / files.RECORDS / files.PARSE_REPORT).exists()

    def await_records(self, run_ids: Collection[str], timeout_s: float) -> set[str]:
        """Wait until all runs are finished and have records. Return the runs that miss the timeout.

        Files that another node of a cluster has written may appear here with a delay.
        """
        deadline_s = time.monotonic() + timeout_s
        while left := set(run_ids) - self.extracted_among(run_ids):
            if time.monotonic() >= deadline_s:
                break
            time.sleep(POLL_S)
        return left

    def begun_among(self, run_ids: Collection[str]) -> set[str]:
        """Return the runs that are in progress or were interrupted."""
        return _listed(self.directory / ".partial", run_ids)

    def failed_among(self, run_ids: Collection[str]) -> set[str]:
        """Return the runs with a failed attempt."""
        return _listed(self.directory / ".failed", run_ids)

    @property
    def has_locks(self) -> bool:
        """Return whether the directory has a folder of locks. Every store has one."""
        return (self.directory / ".locks").is_dir()

    @contextlib.contextmanager
    def exclusive(self, run_id: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold a run's lock. If another process holds it, call `on_wait` and wait."""
        locks = self.directory / ".locks"
        make_folder(locks)
        with file_lock(locks / run_id, on_wait):
            yield

    def locked_among(self, run_ids: Collection[str]) -> set[str]:
        """Return the runs whose lock a process holds, for example to perform the run."""
        locks = self.directory / ".locks"
        return {run_id for run_id in _listed(locks, run_ids) if is_locked(locks / run_id)}

    def remove_unfinished(self, run_id: str) -> None:
        """Remove incomplete copies of a run, and the run itself unless it is finished.

        Raises UserError if the run cannot be removed, such as one that a container made as root.
        """
        for copy in (self.directory / ".partial").glob(f"{run_id}-*"):
            shutil.rmtree(copy, ignore_errors=True)
        folder = self.run(run_id)
        if self.is_finished(run_id) or not folder.exists():
            return
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise UserError(
                f"{folder} is incomplete and cannot be removed: {error.strerror}",
                f"remove it as the owner of its files: sudo rm -r {shlex.quote(str(folder))}",
            ) from error

    def remove_damaged(self, run_ids: Collection[str]) -> None:
        """Remove incomplete runs and truncated records, for example after a power failure.

        Raises UserError if `remove_unfinished` fails.
        """
        for run_id in sorted(_listed(self.directory, run_ids)):
            records = self.run(run_id) / files.RECORDS
            if self.is_finished(run_id) and not has_cut_files(records):
                continue
            with self.exclusive(run_id):
                if not self.is_finished(run_id):
                    LOG.info("%s is incomplete: the run is repeated", self.run(run_id))
                    self.remove_unfinished(run_id)
                elif has_cut_files(records):
                    LOG.info("%s is incomplete: the records are extracted again", records)
                    shutil.rmtree(records)

    def finish(self, run_id: str, manifest: Manifest, made: Path | None = None) -> None:
        """Turn an attempt into the finished run, which replaces an unfinished run of the same name.

        made: the folder of the attempt; by default the folder that `partial` returns. Raises
        UserError if `remove_unfinished` fails.
        """
        made = made or self.partial(run_id)
        (made / files.PROGRESS).unlink(missing_ok=True)
        manifest = manifest.model_copy(update={"log_bytes": log_sizes(made)})
        write_manifest(made / files.MANIFEST, manifest)
        self.remove_unfinished(run_id)
        self._move(made, self.run(run_id))
        shutil.rmtree(self.failed(run_id), ignore_errors=True)

    def fail(self, run_id: str, error: RunFailure, made: Path | None = None) -> None:
        """Keep a failed attempt and the reason, in place of an earlier failed attempt at the run.

        made: the folder of the attempt; by default the folder that `partial` returns.
        """
        made, failed = made or self.partial(run_id), self.failed(run_id)
        made.mkdir(parents=True, exist_ok=True)
        try:
            write_json(made / files.ERROR, error.content())
        except OSError:
            # If the disk is full, free the progress file, which is no longer needed, and retry.
            (made / files.PROGRESS).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                write_json(made / files.ERROR, error.content())
        shutil.rmtree(failed, ignore_errors=True)
        failed.parent.mkdir(parents=True, exist_ok=True)
        self._move(made, failed)

    def describe_failed(self, run_id: str, log: Iterable[str]) -> str:
        """Return a hint: the folder of the failed attempt and the last lines of its log."""
        place = self.failed(run_id)
        if place.is_relative_to(Path.cwd()):
            place = place.relative_to(Path.cwd())
        lines = "".join(f"\n  {line[:300]}" for line in log)
        return (
            f"its files are kept in {place}{'; the last lines of its log:' if lines else ''}{lines}"
        )

    def _move(self, made: Path, target: Path) -> None:
        """Rename the folder of an attempt durably, even if it is on another file system."""
        put_in_place(made, target, self.partial(f"{target.name}-{uuid.uuid4().hex}"))
        shutil.rmtree(self.partial(target.name), ignore_errors=True)


def _listed(folder: Path, names: Collection[str]) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}.intersection(names)
    except FileNotFoundError:
        return set()
