"""Runs in one file: to publish them with a paper, or to go on with them on another machine.

A pack is a tar archive, compressed by xz. Its first member, ``runs.json``, names every file of
every run with its SHA-256; the files follow as ``<run id>/<path>``. The same runs make the same
bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from onionlab.errors import UserError
from onionlab.store import MANIFEST, Store, identity_hash, read_json

FORMAT = 1
INDEX = "runs.json"
LARGEST_INDEX_BYTES = 2**28
RECORDS = "records-*/**/*"

_RUN_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Unpacked:
    """What became of the runs of a pack: their names.

    Attributes:
        new: taken into the store.
        same: there before, and their records are the same bytes.
        different: there before with other records; the store's were kept.
    """

    new: tuple[str, ...]
    same: tuple[str, ...]
    different: tuple[str, ...]


def pack(
    store: Store, run_ids: Iterable[str], out: Path, *, logs: bool, say: Callable[[str], None]
) -> int:
    """Write finished runs into one file, which appears whole or not at all.

    Args:
        store: holds them.
        run_ids: which; those that are not finished are left out.
        out: the file to write.
        logs: with all files of a run; without: manifest, descriptions and records, which is all
            that reports, figures and comparisons read.
        say: receives progress.

    Returns:
        How many runs are in it.

    Raises:
        UserError: none of the runs is finished.
    """
    finished = sorted({run_id for run_id in run_ids if store.is_finished(run_id)})
    if not finished:
        raise UserError("none of these runs is finished", "make them first: make run NAME=...")
    files = {run_id: _files(store.run(run_id), logs=logs) for run_id in finished}
    runs = {
        run_id: {
            "title": read_json(store.manifest(run_id)).get("title", ""),
            "files": {path: _sha256(store.run(run_id) / path) for path in paths},
        }
        for run_id, paths in files.items()
    }
    index = json.dumps({"format": FORMAT, "runs": runs}, indent=1, sort_keys=True) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with tarfile.open(part, "w:xz", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, INDEX, index.encode())
            for run_id, paths in files.items():
                for path in paths:
                    _add(archive, f"{run_id}/{path}", (store.run(run_id) / path).read_bytes())
                say(f"{run_id} {runs[run_id]['title']}")
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return len(finished)


def unpack(store: Store, file: Path) -> Unpacked:
    """Take the runs of a pack into the store, each whole or not at all.

    A run's name is the hash of all that determines it, so it takes the place of a run that this
    checkout would make. Every file has to have the hash that the pack's index states, and every
    manifest has to describe the run that it is named after.

    Raises:
        UserError: the file is missing, no pack, cut or changed.
    """
    scratch = store.directory / f".unpacking-{os.getpid()}"
    try:
        with tarfile.open(file, "r:xz") as archive:
            index = _read_index(archive)
            _extract(archive, index, scratch)
        found: dict[str, list[str]] = {"new": [], "same": [], "different": []}
        for run_id in sorted(index):
            found[_take(store, run_id, scratch / run_id)].append(run_id)
    except FileNotFoundError as error:
        raise UserError(f"there is no {file}") from error
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, ValueError) as error:
        raise UserError(
            f"{file} is no pack of runs, or damaged: {error}", "get it anew; the store is unchanged"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Unpacked(*(tuple(found[name]) for name in ("new", "same", "different")))


def _files(run: Path, *, logs: bool) -> list[str]:
    """The manifest comes first: what is made from it must not be older."""
    wanted = run.rglob("*") if logs else [*run.glob("*.json"), *run.glob(RECORDS)]
    paths = {path.relative_to(run).as_posix() for path in wanted if path.is_file()}
    return [MANIFEST, *sorted(paths - {MANIFEST})]


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o644
    archive.addfile(member, io.BytesIO(content))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_index(archive: tarfile.TarFile) -> dict[str, dict[str, str]]:
    """Run -> path -> SHA-256. Raises ValueError."""
    member = archive.next()
    if member is None or member.name != INDEX or member.size > LARGEST_INDEX_BYTES:
        raise ValueError(f"it does not begin with {INDEX}")
    data = json.loads(_content(archive, member))
    try:
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']}, this program reads {FORMAT}")
        index = {run_id: dict(entry["files"]) for run_id, entry in data["runs"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{INDEX} is malformed") from error
    for run_id, files in index.items():
        if not _RUN_ID.fullmatch(run_id) or MANIFEST not in files:
            raise ValueError(f"{run_id!r} is no run")
        for path in files:
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                raise ValueError(f"{path!r} is no path in a run")
    return index


def _extract(
    archive: tarfile.TarFile, index: Mapping[str, Mapping[str, str]], scratch: Path
) -> None:
    """Write all files of the index below ``scratch``. Raises ValueError."""
    missing = {f"{run_id}/{path}" for run_id, files in index.items() for path in files}
    while (member := archive.next()) is not None:
        if member.name not in missing:
            raise ValueError(f"{member.name!r} is not in its index")
        content = _content(archive, member)
        run_id, _, path = member.name.partition("/")
        if hashlib.sha256(content).hexdigest() != index[run_id][path]:
            raise ValueError(f"{member.name} was changed")
        missing.remove(member.name)
        (scratch / member.name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / member.name).write_bytes(content)
    if missing:
        raise ValueError(f"{len(missing)} files are missing, such as {min(missing)}")
    for run_id in index:
        manifest = read_json(scratch / run_id / MANIFEST)
        if not isinstance(manifest, dict) or identity_hash(manifest.get("identity", {})) != run_id:
            raise ValueError(f"the manifest of {run_id} describes another run")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member) if member.isfile() else None
    if stream is None:
        raise ValueError(f"{member.name!r} is no file")
    return stream.read()


def _take(store: Store, run_id: str, unpacked: Path) -> str:
    """Move one run into the store; says which of `Unpacked` it is."""
    target = store.run(run_id)
    with store.exclusive(run_id):
        if not store.is_finished(run_id):
            # A directory without a manifest is no run.
            shutil.rmtree(target, ignore_errors=True)
            unpacked.rename(target)
            return "new"
        return "same" if _records(unpacked) == _records(target) else "different"


def _records(run: Path) -> dict[str, Any]:
    return {
        path.relative_to(run).as_posix(): _sha256(path)
        for path in run.glob(RECORDS)
        if path.suffix == ".parquet"
    }
