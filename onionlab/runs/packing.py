"""Runs in one file: to publish them with a paper, or to go on with them on another machine.

A pack is a tar archive, compressed by xz. Its first member, ``index.json``, names every file with
its SHA-256. Then come the files of each run, ``<run id>/<path>``, and the studies that the runs are
of, ``studies/<experiment>.json``. The same runs of the same studies make the same bytes.

A published pack has of each run no more than what figures and claims read (`formats.published`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from pydantic import ValidationError

from analysis.errors import AnalysisError, problems_of
from analysis.formats.compressed import PIECE_BYTES, UnpackedFile, most_bytes, require_size
from analysis.formats.durable import put_in_place, whole_file
from analysis.formats.files import (
    ANY_RECORDS,
    MANIFEST,
    PACK_INDEX,
    PARSE_REPORT,
    RECORDS,
    STUDIES,
)
from analysis.formats.json_files import json_text, parse_json
from analysis.formats.manifest import is_whole, read_manifest
from analysis.formats.pack_index import PackIndex
from analysis.formats.published import is_published, read_published
from analysis.formats.scratch import scratch_folder
from analysis.formats.study import Level, load_study
from analysis.formats.whole_run import require_published, require_whole
from analysis.measures.publishing import publish
from analysis.records.extract import extract
from onionlab.errors import UserError
from onionlab.runs.packed_studies import add_study
from onionlab.runs.store import Store

SCRATCH = ".unpacking-"
"""How the folders begin that packs are unpacked in."""

# What is read of a pack. `compressed.most_bytes` limits its whole size.
LARGEST_INDEX_BYTES = 2**27
"""At some 100 bytes for each, it limits the number of members."""
LARGEST_INDEX_SHARE = 4
"""A quarter of a pack at most: each member has a header of 512 bytes as well."""
LARGEST_HEADER_BYTES = 2**16
"""Of a member's name and the like, where they do not fit into tar's own fields."""
LONGEST_NAME_BYTES = 1024
LONGEST_PART_BYTES = 255
MAX_DEPTH = 16
"""Parts of a name. The names of hosts' files in a run have seven."""

SHOWN_NAME = 100
SHOWN = 300
"""So much of what is wrong with a pack is shown, which may name a name of any length."""
RECORD_FILES = f"{ANY_RECORDS}/**/*"

_RUN_ID = re.compile(r"[0-9a-f]{16}")
_STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.json")


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
    store: Store,
    run_ids: Iterable[str],
    out: Path,
    *,
    studies: Iterable[Path] = (),
    logs: bool,
    published: bool = False,
    say: Callable[[str], None],
) -> int:
    """Write finished runs into one file, which appears whole or not at all.

    Args:
        store: holds them.
        run_ids: which; those that are not finished are left out.
        out: the file to write.
        studies: the study.json of each experiment that the runs are of.
        logs: with all files of a run; without: manifest, descriptions and records, which is all
            that reports, figures and comparisons read.
        published: with manifest and what figures and claims read, and no more; not with ``logs``.
        say: receives progress.

    Returns:
        How many runs are in it.

    Raises:
        UserError: none of the runs is finished; one has no records that could be published.
    """
    finished = sorted({run_id for run_id in run_ids if store.is_finished(run_id)})
    if not finished:
        raise UserError("none of these runs is finished", "make them first: make run NAME=...")
    of_studies = {f"{STUDIES}/{load_study(path).name}.json": path for path in studies}
    members = dict(sorted(of_studies.items()))
    out.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if published:
            scratch = stack.enter_context(scratch_folder(out.parent, f".{out.name}-"))
            members.update(_published_files(store, finished, of_studies.values(), scratch))
        else:
            members.update(_whole_files(store, finished, logs=logs))
        _write_archive(out, members, published=published, say=say)
    return len(finished)


def _whole_files(store: Store, run_ids: Sequence[str], *, logs: bool) -> Iterator[tuple[str, Path]]:
    """Name and path of each member, run by run."""
    for run_id in run_ids:
        run = store.run(run_id)
        yield from ((f"{run_id}/{path}", run / path) for path in _files(run, logs=logs))


def _published_files(
    store: Store, run_ids: Sequence[str], studies: Iterable[Path], scratch: Path
) -> Iterator[tuple[str, Path]]:
    """Name and path of each member, written below ``scratch`` but for the manifests.

    Files of one name stand together: they are most alike, and compress best so.
    """
    levels: dict[str, list[Level]] = {}
    for study in map(load_study, studies):
        for run in study.runs:
            levels.setdefault(run.run_id, []).append(study.level(run.level))
    yield from ((f"{run_id}/{MANIFEST}", store.manifest(run_id)) for run_id in run_ids)
    for run_id in run_ids:
        if run_id not in levels:
            raise UserError(f"{run_id} is of no study that is packed with it")
        try:
            publish(store.run(run_id) / RECORDS, levels[run_id], scratch / run_id / RECORDS)
        except AnalysisError as error:
            raise UserError(f"{run_id} cannot be published: {error.message}", error.hint) from error
    paths = [path for path in scratch.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.name, path)):
        yield path.relative_to(scratch).as_posix(), path


def _write_archive(
    out: Path, members: Mapping[str, Path], *, published: bool, say: Callable[[str], None]
) -> None:
    hashes = {name: _sha256(path) for name, path in members.items()}
    index = json_text(PackIndex(format=2 if published else 1, files=hashes).content()).encode()
    with (
        whole_file(out) as part,
        tarfile.open(part, "w:xz", format=tarfile.PAX_FORMAT) as archive,
    ):
        _add(archive, PACK_INDEX, len(index), io.BytesIO(index))
        for name, path in members.items():
            with path.open("rb") as file:
                _add(archive, name, path.stat().st_size, file)
            if path.name == MANIFEST:
                say(f"{path.parent.name} {read_manifest(path).title}")


def unpack(store: Store, file: Path) -> Unpacked:
    """Take the runs of a pack into the store, each whole or not at all.

    A run's name is the hash of all that determines it, so it takes the place of a run that this
    checkout would make. Every file has to have the hash that the pack's index states, every
    manifest has to describe the run that it is named after, and every run has to be whole
    (`require_whole`); otherwise nothing is taken. A run of that name that is there and is not whole
    is replaced.

    Raises:
        UserError: the file is missing, no pack, too large, cut or changed, a run is not whole, or
            it is a published pack, whose runs never are.
    """
    found: dict[str, list[str]] = {"new": [], "same": [], "different": []}
    with opened(file, store.directory) as folder:
        runs = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
        if any(is_published(run / RECORDS) for run in runs):
            raise UserError(
                f"{file} is a published pack: of its runs it has what figures and claims read, and "
                "no more, so they cannot stand for runs that are made here",
                "draw from it (make figures PACKS=...) or compare with it (make compare A=...)",
            )
        for run in runs:
            found[_take(store, run)].append(run.name)
    return Unpacked(*(tuple(found[name]) for name in ("new", "same", "different")))


@contextlib.contextmanager
def opened(file: Path, below: Path) -> Iterator[Path]:
    """A pack's content in a folder below ``below``, checked, until the block ends.

    What was left there by who was killed goes. Raises as `unpack`.
    """
    try:
        with contextlib.ExitStack() as stack:
            packed = stack.enter_context(file.open("rb"))
            below.mkdir(parents=True, exist_ok=True)
            scratch = stack.enter_context(scratch_folder(below, SCRATCH))
            try:
                _extract(packed, scratch)
            # Of what the system refuses, as where the disk is full, the pack is not guilty.
            except (EOFError, tarfile.TarError, ValueError, AnalysisError) as error:
                raise UserError(
                    f"{file} is no pack of runs, or damaged: {_shown(error, scratch)}",
                    "get it anew; nothing was taken from it",
                ) from error
            yield scratch
    except FileNotFoundError as error:
        if error.filename != os.fspath(file):
            raise
        raise UserError(f"there is no {file}") from error


def _shown(error: Exception, scratch: Path) -> str:
    text = error.message if isinstance(error, UserError) else str(error)
    text = text.replace(f"{scratch}/", "")
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


@contextlib.contextmanager
def opened_together(files: Sequence[Path], below: Path) -> Iterator[Path]:
    """The content of packs as if it were that of one, in a folder below ``below``, likewise.

    A run of several of them counts once, and the networks of one experiment come together in its
    study.

    Raises:
        UserError: as `unpack`; a run has other records in another pack; two studies of one
            experiment differ in more than their networks and the machine.
    """
    with contextlib.ExitStack() as stack:
        whole, *others = (stack.enter_context(opened(file, below)) for file in files)
        for part, file in zip(others, files[1:], strict=True):
            for run in sorted(path.parent for path in part.glob(f"*/{MANIFEST}")):
                there = whole / run.name
                if there.exists() and _records(run) != _records(there):
                    raise UserError(f"{run.name} has other records in {file} than in {files[0]}")
                # Of two, one of which is published, the whole one has more to say.
                if is_published(there / RECORDS):
                    shutil.rmtree(there)
                if not there.exists():
                    run.rename(there)
            for study in sorted((part / STUDIES).glob("*.json")):
                target = whole / STUDIES / study.name
                # Of runs that were planned and not made there is nothing to put together.
                if target.exists() and not _has_runs_of(study, whole):
                    continue
                if target.exists() and not _has_runs_of(target, whole):
                    target.unlink()
                add_study(target, study, file)
        yield whole


def _has_runs_of(study: Path, folder: Path) -> bool:
    return any((folder / run.run_id / MANIFEST).is_file() for run in load_study(study).runs)


def _files(run: Path, *, logs: bool) -> list[str]:
    """The manifest comes first: what is made from it must not be older."""
    wanted = run.rglob("*") if logs else [*run.glob("*.json"), *run.glob(RECORD_FILES)]
    paths = {path.relative_to(run).as_posix() for path in wanted if path.is_file()}
    return [MANIFEST, *sorted(paths - {MANIFEST})]


def _add(archive: tarfile.TarFile, name: str, size_bytes: int, content: BinaryIO) -> None:
    member = tarfile.TarInfo(name)
    member.size = size_bytes
    member.mode = 0o644
    archive.addfile(member, content)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Member(tarfile.TarInfo):
    """A header of an archive, read where it is that of a plain file.

    All other kinds are refused, and with them what they make tarfile read or write: what is said of
    a name at a length of any size, sparse files, links, devices.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """As tarfile's own. Raises ValueError for another kind of member."""
        member = super().frombuf(buf, encoding, errors)
        if member.type == tarfile.XHDTYPE:
            require_size(member.size, LARGEST_HEADER_BYTES)
        elif member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise ValueError(f"{member.name!r} is no file")
        return member


def _extract(packed: BinaryIO, scratch: Path) -> None:
    """Write all files of a pack below ``scratch``, and check them.

    Raises:
        ValueError, EOFError, tarfile.TarError: no pack, too large, cut or changed.
        AnalysisError: a run is not whole.
    """
    most = most_bytes(packed.seek(0, os.SEEK_END))
    # Of a stream tarfile takes no more than its bytes in order.
    unpacked = cast(BinaryIO, UnpackedFile(packed, ".xz"))
    with tarfile.open(fileobj=unpacked, mode="r|", bufsize=PIECE_BYTES, tarinfo=_Member) as archive:
        first = _read_index(archive, min(LARGEST_INDEX_BYTES, most // LARGEST_INDEX_SHARE))
        index, published = first.files, first.published
        missing = set(index)
        while (member := archive.next()) is not None:
            if member.name not in missing:
                raise ValueError(f"{member.name!r} is not in its index")
            require_size(member.size, most)
            if _write(archive, member, scratch / member.name) != index[member.name]:
                raise ValueError(f"{member.name} was changed")
            missing.remove(member.name)
    if missing:
        raise ValueError(f"{len(missing)} files are missing, such as {min(missing)}")
    for run_id in sorted({name.partition("/")[0] for name in index} - {STUDIES}):
        if f"{run_id}/{MANIFEST}" not in index:
            raise ValueError(f"{run_id} has no manifest")
        if read_manifest(scratch / run_id / MANIFEST).identity_hash != run_id:
            raise ValueError(f"the manifest of {run_id} describes another run")
        (require_published if published else require_whole)(scratch / run_id)


def _read_index(archive: tarfile.TarFile, most: int) -> PackIndex:
    """Return what the first member says of the others.

    Raises:
        ValueError: another member, one of more than ``most`` bytes, or no index.
    """
    member = archive.next()
    if member is None or member.name != PACK_INDEX:
        raise ValueError(f"it does not begin with {PACK_INDEX}")
    require_size(member.size, most)
    try:
        index = PackIndex.model_validate(parse_json(b"".join(_content(archive, member))))
    except ValidationError as error:
        problems = "; ".join(problems_of(error, "index"))
        raise ValueError(f"{PACK_INDEX} is not valid: {problems}") from None
    except ValueError as error:
        raise ValueError(f"{PACK_INDEX} is not valid JSON: {error}") from None
    for name in index.files:
        if not _is_name(name) or any(folder in index.files for folder in _folders(name)):
            raise ValueError(f"{name[:SHOWN_NAME]!r} is no file of a run")
    return index


def _folders(name: str) -> Iterator[str]:
    """All folders that a file lies in: `a` and `a/b` of `a/b/c`."""
    return (name[:at] for at, letter in enumerate(name) if letter == "/")


def _is_name(name: str) -> bool:
    """Whether a member may have this name: of a file of a run, or of a study."""
    first, *rest = parts = name.split("/")
    if len(name.encode()) > LONGEST_NAME_BYTES or not name.isprintable():
        return False
    if len(parts) > MAX_DEPTH:
        return False
    if any(part in ("", ".", "..") or len(part.encode()) > LONGEST_PART_BYTES for part in parts):
        return False
    of_run = _RUN_ID.fullmatch(first) is not None and bool(rest)
    of_study = first == STUDIES and len(rest) == 1 and _STUDY.fullmatch(rest[0]) is not None
    return of_run or of_study


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    """A member's content, a piece at a time. Raises ValueError where it is no plain file."""
    stream = archive.extractfile(member) if member.isfile() and not member.issparse() else None
    if stream is None:
        raise ValueError(f"{member.name!r} is no file")
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    """Write a member's content to a file; returns its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for piece in _content(archive, member):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _take(store: Store, unpacked: Path) -> str:
    """Move one run into the store; return which of `Unpacked` it is."""
    target = store.run(unpacked.name)
    with store.exclusive(unpacked.name):
        if store.is_finished(target.name) and not (target / RECORDS / PARSE_REPORT).is_file():
            # Another command made the run a moment ago, or was killed before it read the logs.
            with contextlib.suppress(AnalysisError):
                extract(target, target / RECORDS)
        if not _is_whole(target):
            shutil.rmtree(target, ignore_errors=True)
            put_in_place(unpacked, target)
            return "new"
        return "same" if _records(unpacked) == _records(target) else "different"


def _is_whole(run: Path) -> bool:
    """Return whether a run is in the store and can be read."""
    try:
        require_whole(run)
    except AnalysisError:
        return False
    return is_whole(run)


def _records(run: Path) -> dict[str, str]:
    """SHA-256 of each record table, or of those that a published run's tables stand for."""
    if is_published(run / RECORDS):
        return {
            f"{RECORDS}/{name}": sha for name, sha in read_published(run / RECORDS).records.items()
        }
    return {
        path.relative_to(run).as_posix(): _sha256(path)
        for path in run.glob(RECORD_FILES)
        if path.suffix == ".parquet"
    }
