"""Write runs into one file, to publish them or to continue with them on another machine.

A pack is a tar archive, compressed with xz. Its first member, ``index.json``, has the SHA-256 of
each other member: ``studies/<experiment>.json`` and the files of each run, ``<run id>/<path>``.
The same runs of the same studies give the same bytes.

A published pack has only the data that figures and claims need (`analysis.formats.published`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal, cast

from analysis.errors import AnalysisError
from analysis.formats.compressed import PIECE_BYTES, max_content_bytes, pieces, require_size
from analysis.formats.durable import put_in_place, whole_file
from analysis.formats.files import ANY_RECORDS, MANIFEST, PACK_INDEX, PARSE_REPORT, RECORDS, STUDIES
from analysis.formats.json_files import json_text, read_as
from analysis.formats.manifest import is_whole, read_manifest, write_manifest
from analysis.formats.published import GET_ANEW, PackIndex, is_published, read_published
from analysis.formats.record_files import table_hashes
from analysis.formats.scratch import scratch_folder
from analysis.formats.study import Level, Study, load_study, write_study
from analysis.formats.whole_run import require_published, require_whole
from analysis.measures.publishing import publish
from analysis.records.extract import extract
from onionlab.errors import UserError
from onionlab.paths import is_file
from onionlab.programs.building import file_sha256
from onionlab.runs.packed_studies import add_study
from onionlab.runs.store import Store

LOG = logging.getLogger(__name__)
SCRATCH = ".unpacking-"
"""Prefix of the names of the folders in which packs are unpacked."""

_NAME = re.compile(r"[0-9a-f]{16}(/[^/]+){1,15}|studies/[A-Za-z0-9][A-Za-z0-9._-]*\.json")
"""Name of a file of a run or of a study. The name of a run's file has up to seven parts; this
pattern allows 16 parts."""
MAX_NAME_BYTES = 1024
MAX_PART_BYTES = 255
"""Maximum size of one part of a path on Linux."""
MAX_INDEX_BYTES = 2**27
"""Maximum size of index.json, which has about 100 bytes per member. For a small pack, the maximum
is a quarter of `max_content_bytes`, which depends on the size of the pack. Reading a JSON file
needs up to twenty times its size in memory, and a small pack must not need much memory."""

MAX_HEADER_BYTES = 2**16
"""Maximum size of an extended header, which holds a name that is too long for tar's own header."""

MAX_SHOWN_NAME = 100
MAX_SHOWN_LENGTH = 300
"""Length at which a message about a damaged pack is cut. The message may contain a very long
name."""

_DAMAGE = (
    *(tarfile.TarError, ValueError, RecursionError, AnalysisError),
    # One name in the pack is used for both a file and a folder.
    *(FileExistsError, IsADirectoryError, NotADirectoryError),
)
"""Errors that a damaged pack causes. Other errors of the system, such as a full disk, are not due
to the pack."""


Outcome = Literal["new", "same", "different"]
"""Result of `unpack` for a run. "new": the run was added to the store. "same": the store already
has the run, with the same records. "different": the store has the run with other records. It keeps
its own records."""


def pack(
    store: Store,
    run_ids: Iterable[str],
    out: Path,
    *,
    studies: Sequence[Study] = (),
    logs: bool,
    published: bool = False,
) -> int:
    """Write finished runs into one file, which replaces ``out`` once it is complete.

    Args:
        store: The store of the runs.
        run_ids: The runs. Unfinished runs are left out.
        out: The file to write.
        studies: The studies of these runs, which become members of the pack.
        logs: Whether to include all files of each run. Otherwise a pack has only the records, the
            manifest and the other JSON files. They suffice for reports, figures and comparisons.
        published: Whether to include only the data for figures and claims. Cannot be combined with
            ``logs``.

    Returns:
        The number of runs in the file.

    Raises:
        UserError: None of the runs is finished; or ``published`` is set, and a run belongs to none
            of the studies or has no records that can be published.
    """
    finished = sorted({run_id for run_id in run_ids if store.is_finished(run_id)})
    if not finished:
        raise UserError("none of these runs is finished", "make them first: make run NAME=...")
    out.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(out.parent, f".{out.name}-") as scratch:
        for study in studies:
            write_study(scratch / STUDIES / f"{study.name}.json", study)
        if published:
            _publish(store, finished, studies, scratch)
            paths = []
        else:
            paths = [path for run_id in finished for path in _run_files(store.run(run_id), logs)]
        files = [(path.relative_to(store.directory).as_posix(), path) for path in paths]
        files += [(path.relative_to(scratch).as_posix(), path) for path in _files(scratch)]
        # Manifests come first, so that the records of an unpacked run are not older than its
        # manifest. Runs that were performed here also have this order: their records are extracted
        # after the manifest is written. Files with the same name are next to each other. They are
        # similar, so this makes the archive smaller.
        files.sort(key=lambda file: (file[1].name != MANIFEST, file[1].name, file[0]))
        _write_archive(out, dict(files), published=published)
    for run_id in finished:
        LOG.info("%s %s", run_id, read_manifest(store.manifest(run_id)).title)
    return len(finished)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _run_files(run: Path, logs: bool) -> list[Path]:
    """Return all files of a run, or the files for a pack without logs."""
    if logs:
        paths = _files(run)
    else:
        records = [path for folder in run.glob(ANY_RECORDS) for path in _files(folder)]
        paths = [path for path in run.glob("*.json") if path.is_file()] + records
    return [path for path in paths if not _is_leftover(path.relative_to(run))]


def _is_leftover(path: Path) -> bool:
    """Return whether a killed extraction left a file. path: its path in the run's folder."""
    folder, *names = path.parts
    return fnmatch(folder, ANY_RECORDS) and any(name.startswith(".") for name in names)


def _publish(store: Store, run_ids: Sequence[str], studies: Sequence[Study], out: Path) -> None:
    """Write the files of each run that a published pack includes to ``out / run_id``."""
    levels: dict[str, list[Level]] = {}
    for study in studies:
        for run in study.runs:
            levels.setdefault(run.run_id, []).append(study.level(run.level))
    for run_id in run_ids:
        if run_id not in levels:
            raise UserError(f"{run_id} does not belong to a study in the pack")
        try:
            publish(store.run(run_id) / RECORDS, levels[run_id], out / run_id / RECORDS)
        except AnalysisError as error:
            raise UserError(f"{run_id} cannot be published: {error.message}", error.hint) from error
        # Without logs, the list of their sizes is useless.
        manifest = read_manifest(store.manifest(run_id)).model_copy(update={"log_bytes": {}})
        write_manifest(out / run_id / MANIFEST, manifest)


def _write_archive(out: Path, members: Mapping[str, Path], *, published: bool) -> None:
    """Write a pack. Raises UserError if another command changes a member during this call."""
    hashes = {name: file_sha256(path) for name, path in members.items()}
    index = json_text(PackIndex(format=2 if published else 1, files=hashes).content()).encode()
    with whole_file(out) as part, tarfile.open(part, "w:xz", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, PACK_INDEX, len(index), io.BytesIO(index))
        for name, path in members.items():
            with path.open("rb") as file:
                _add(archive, name, path.stat().st_size, file)
            if file_sha256(path) != hashes[name]:
                raise UserError(
                    f"{path} has changed while it was packed",
                    "wait until other commands that use its run have ended, and pack again",
                )


def _add(archive: tarfile.TarFile, name: str, size_bytes: int, content: BinaryIO) -> None:
    # Owner and modification time are omitted, so that the same files give the same bytes.
    member = tarfile.TarInfo(name)
    member.size = size_bytes
    archive.addfile(member, content)


def unpack(store: Store, file: Path) -> list[tuple[str, Outcome]]:
    """Add the runs of a pack to the store, each completely or not at all; return their outcomes.

    A run's name is the hash of everything that determines it, so a run from a pack is equivalent to
    the run of that name in this checkout. If a run in the pack is incomplete (`require_whole`),
    nothing is added. An incomplete run in the store is replaced.

    Raises UserError if `open_pack` fails, or if the file is a published pack.
    """
    with open_pack(file, store.directory) as folder:
        runs = _runs(folder)
        if any(is_published(run / RECORDS) for run in runs):
            raise UserError(
                f"{file} is a published pack, which does not have all records of its runs",
                "draw figures from it (make figures PACKS=...) or compare runs with it (make "
                "compare A=...)",
            )
        return [(run.name, _add_to_store(store, run)) for run in runs]


@contextlib.contextmanager
def open_pack(file: Path, parent: Path) -> Iterator[Path]:
    """Unpack a pack into a temporary folder in ``parent``, and yield this folder.

    Check that all files match the SHA-256 in the index, that manifests match their runs, and that
    runs are complete (`require_whole`, `require_published`). Also remove folders that killed
    commands left in ``parent``.

    Raises:
        UserError: The file is missing, is damaged, is not a pack, lacks a part of a run, or exceeds
            ``max_content_bytes``; or the block raises an AnalysisError about an unpacked file.
    """
    if not is_file(file):
        raise UserError(f"there is no {file}")
    parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(parent, SCRATCH) as scratch:
        try:
            _extract(file, scratch)
        except _DAMAGE as error:
            raise _damage(file, error, scratch) from error
        try:
            yield scratch
        except AnalysisError as error:
            if str(scratch) not in error.message:
                raise
            raise _damage(file, error, scratch) from error


def _damage(file: Path, error: Exception, scratch: Path) -> UserError:
    text = error.message if isinstance(error, UserError) else str(error)
    text = text.replace(f"{scratch}/", "")
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    if len(text) > MAX_SHOWN_LENGTH:
        text = f"{text[:MAX_SHOWN_LENGTH]}..."
    return UserError(f"{file} is not a pack of runs, or it is damaged: {text}", GET_ANEW)


@contextlib.contextmanager
def open_packs(files: Sequence[Path], parent: Path) -> Iterator[Path]:
    """Unpack several packs into one temporary folder in ``parent``, and yield this folder.

    A run that several packs contain is unpacked once. Studies of the same experiment with different
    networks are merged into one. Raises UserError if `open_pack` fails, if a run has different
    records in two packs, or if two studies of one experiment differ in more than their networks and
    the machine.
    """
    with contextlib.ExitStack() as stack:
        merged, *others = (stack.enter_context(open_pack(file, parent)) for file in files)
        sources: dict[Path, Path] = {}
        try:
            for folder, file in zip(others, files[1:], strict=True):
                _merge(merged, folder, file, sources)
            yield merged
        except AnalysisError as error:
            for path, file in sources.items():
                if str(path) in error.message:
                    raise _damage(file, error, merged) from error
            raise


def _merge(merged: Path, folder: Path, file: Path, sources: dict[Path, Path]) -> None:
    """Move the runs and studies of the pack ``file``, unpacked in ``folder``, into ``merged``.

    merged: the folder of the first pack, into which all earlier packs have been merged. sources:
    path of a moved run or study -> its pack; this function adds entries.
    """
    for run in _runs(folder):
        target = merged / run.name
        if target.exists() and record_hashes(run / RECORDS) != record_hashes(target / RECORDS):
            raise UserError(f"{run.name} has other records in {file} than in an earlier pack")
        # A published run lacks records that its copy in this pack may have, so replace it.
        if is_published(target / RECORDS):
            shutil.rmtree(target)
        if not target.exists():
            run.rename(target)
            sources[target] = file
    for study in sorted((folder / STUDIES).glob("*.json")):
        target = merged / STUDIES / study.name
        # If the packs have no run of a study, the study was only planned. Leave it out if another
        # pack has a study of the same experiment.
        if target.exists() and not _has_runs(study, merged):
            continue
        if target.exists() and not _has_runs(target, merged):
            target.unlink()
        if not target.exists():
            sources[target] = file
        add_study(target, study, file)


def _has_runs(study: Path, folder: Path) -> bool:
    return any((folder / run.run_id / MANIFEST).is_file() for run in load_study(study).runs)


class _Member(tarfile.TarInfo):
    """The header of a regular file in an archive.

    Headers of other types are rejected. Otherwise tarfile would follow links, and would read the
    content of some headers into memory, whatever its size.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """Read a header. Raises ValueError if it is of another type, or too large."""
        member = super().frombuf(buf, encoding, errors)
        if member.type == tarfile.XHDTYPE:
            require_size(member.size, MAX_HEADER_BYTES)
        elif member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise ValueError(f"{member.name!r} is not a regular file")
        return member


class _Content:
    """The decompressed content of a pack. Unlike ``lzma.open``, it limits the decoder's memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._pieces = pieces(file, ".xz")
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end. Raises any error of `pieces`."""
        parts = [self._rest]
        missing = size - len(self._rest)
        while missing > 0 and (part := next(self._pieces, None)) is not None:
            parts.append(part)
            missing -= len(part)
        content = b"".join(parts)
        self._rest = content[size:]
        return content[:size]


def _extract(file: Path, folder: Path) -> None:
    """Write all files of a pack into a folder. Raises one of _DAMAGE if the pack is damaged."""
    max_bytes = max_content_bytes(file.stat().st_size)
    total_bytes = 0
    index: PackIndex | None = None
    missing = {PACK_INDEX: ""}
    with (
        file.open("rb") as compressed,
        # In the mode "r|", tarfile only reads forwards, which is all that _Content supports.
        tarfile.open(
            fileobj=cast(BinaryIO, _Content(compressed)),
            mode="r|",
            bufsize=PIECE_BYTES,
            tarinfo=_Member,
        ) as archive,
    ):
        while (member := archive.next()) is not None:
            sha256 = missing.pop(member.name, None)
            if sha256 is None:
                raise ValueError(
                    f"{member.name!r} is unexpected: {PACK_INDEX}, the first member, lists each "
                    "other one once"
                )
            # `_Member.frombuf` cannot check this: tarfile applies an extended header afterwards,
            # which can change the size and make the file sparse.
            if member.size < 0 or member.issparse():
                raise ValueError(f"{member.name!r} is not a file of a run")
            total_bytes += tarfile.BLOCKSIZE + member.size
            require_size(total_bytes, max_bytes)
            # `_read_index` checks the names. `archive.extract` is not used, because it has no
            # filter in Debian 12's Python 3.11.2.
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with cast(BinaryIO, archive.extractfile(member)) as content, target.open("xb") as out:
                shutil.copyfileobj(content, out, PIECE_BYTES)
            if index is None:
                index = _read_index(folder, min(MAX_INDEX_BYTES, max_bytes // 4))
                missing = dict(index.files)
            elif file_sha256(folder / member.name) != sha256:
                raise ValueError(f"{member.name} was changed")
    if index is None or missing:
        raise ValueError(f"{min(missing)} is missing")
    for run in _runs(folder):
        if read_manifest(run / MANIFEST).identity_hash != run.name:
            raise ValueError(f"the manifest of {run.name} describes another run")
        (require_published if index.format == 2 else require_whole)(run)


def _read_index(folder: Path, max_bytes: int) -> PackIndex:
    """Read and remove the index. Raises ValueError or AnalysisError if it is damaged."""
    index = read_as(PackIndex, folder / PACK_INDEX, "index", most=max_bytes)
    (folder / PACK_INDEX).unlink()
    for name in index.files:
        # The name is checked first, because computing the parents of a very long name can take
        # minutes.
        if not _is_name(name) or any(str(p) in index.files for p in PurePosixPath(name).parents):
            raise ValueError(f"{name[:MAX_SHOWN_NAME]!r} is not a file of a run")
    return index


def _is_name(name: str) -> bool:
    """Return whether a member may have this name."""
    parts = name.split("/")
    return (
        _NAME.fullmatch(name) is not None
        and name.isprintable()
        and len(name.encode()) <= MAX_NAME_BYTES
        and all(len(part.encode()) <= MAX_PART_BYTES for part in parts)
        and not {".", ".."} & set(parts)
    )


def _runs(folder: Path) -> list[Path]:
    """Return the folders of the runs of an unpacked pack."""
    return sorted(path for path in folder.iterdir() if path.name != STUDIES)


def _add_to_store(store: Store, unpacked: Path) -> Outcome:
    """Move one run into the store, unless the store has a complete copy of it."""
    target = store.run(unpacked.name)
    with store.exclusive(unpacked.name):
        if store.is_finished(target.name) and not (target / RECORDS / PARSE_REPORT).is_file():
            # Extract the missing records, to compare them below. Records are missing if another
            # command has just finished the run, or was killed after it had finished the run.
            with contextlib.suppress(AnalysisError):
                extract(target, target / RECORDS)
        if not _is_readable(target):
            shutil.rmtree(target, ignore_errors=True)
            put_in_place(unpacked, target)
            return "new"
        is_same = record_hashes(unpacked / RECORDS) == record_hashes(target / RECORDS)
        return "same" if is_same else "different"


def _is_readable(run: Path) -> bool:
    """Return whether a run in the store exists, is complete, and can be read."""
    try:
        require_whole(run)
    except AnalysisError:
        return False
    return is_whole(run)


def record_hashes(records: Path) -> dict[str, str]:
    """Return the SHA-256 of each record table, before it was reduced for a published pack."""
    return read_published(records).records if is_published(records) else table_hashes(records)
