"""The run store: each run under the hash of everything that determines it, whole or not there.

    runs/<id>/            a finished run: a tornettools-style prefix, manifest.json, records-*/
    runs/.partial/<id>/   a run that is being made, or was interrupted; never read
    runs/.failed/<id>/    the last failed attempt, kept to be looked at, with error.json

A run directory enters the first level by one rename, after all of it was written.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
ERROR = "error.json"
PROGRESS = "progress.json"
ID_HEX_DIGITS = 16


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Return the name of a run: a hash over the canonical JSON of its identity."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_HEX_DIGITS]


def write_json(path: Path, data: Any) -> None:
    """Write JSON so that a reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    part.replace(path)


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text())


class Store:
    """The runs below one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, run_id: str) -> Path:
        """Where a finished run is."""
        return self.directory / run_id

    def manifest(self, run_id: str) -> Path:
        """The file whose presence says that a run is finished."""
        return self.run(run_id) / MANIFEST

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
    def exclusive(self, run_id: str) -> Iterator[None]:
        """Hold a run's lock, which ends with the process however that ends; wait if it is taken."""
        locks = self.directory / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / run_id).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def remove_unfinished(self, run_id: str) -> None:
        """Remove a directory without a manifest: it is no run, however it came there."""
        if not self.is_finished(run_id):
            shutil.rmtree(self.run(run_id), ignore_errors=True)

    def finish(self, run_id: str, manifest: Mapping[str, Any]) -> None:
        """Make the partial run the finished one."""
        partial = self.partial(run_id)
        (partial / PROGRESS).unlink(missing_ok=True)
        write_json(partial / MANIFEST, manifest)
        partial.rename(self.run(run_id))
        shutil.rmtree(self.failed(run_id), ignore_errors=True)

    def fail(self, run_id: str, error: Mapping[str, Any]) -> None:
        """Keep what there is of a failed run, with the reason, in an earlier failure's place."""
        partial, failed = self.partial(run_id), self.failed(run_id)
        partial.mkdir(parents=True, exist_ok=True)
        write_json(partial / ERROR, error)
        shutil.rmtree(failed, ignore_errors=True)
        failed.parent.mkdir(parents=True, exist_ok=True)
        partial.rename(failed)
