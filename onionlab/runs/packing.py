"""Runs in one file: to publish them with a paper, or to go on with them on another machine.

A pack is a tar archive, compressed by xz. Its first member, ``index.json``, names every file with
its SHA-256. Then come the files of each run, ``<run id>/<path>``, and the studies that the runs are
of, ``studies/<experiment>.json``. The same runs of the same studies make the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from analysis.errors import AnalysisError, problems_of
from analysis.formats.files import ANY_RECORDS, MANIFEST, PACK_INDEX, STUDIES
from analysis.formats.json_files import json_text
from analysis.formats.manifest import Manifest, read_manifest
from analysis.formats.pack_index import PackIndex
from analysis.formats.study import Study, load_study, write_study
from onionlab.errors import UserError
from onionlab.runs.store import Store

LARGEST_INDEX_BYTES = 2**28
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
        say: receives progress.

    Returns:
        How many runs are in it.

    Raises:
        UserError: none of the runs is finished.
    """
    finished = sorted({run_id for run_id in run_ids if store.is_finished(run_id)})
    if not finished:
        raise UserError("none of these runs is finished", "make them first: make run NAME=...")
    members = {f"{STUDIES}/{load_study(path).name}.json": path for path in studies}
    members = dict(sorted(members.items()))
    for run_id in finished:
        run = store.run(run_id)
        members.update((f"{run_id}/{path}", run / path) for path in _files(run, logs=logs))
    hashes = {name: _sha256(path) for name, path in members.items()}
    index = json_text(PackIndex(files=hashes).content())
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with tarfile.open(part, "w:xz", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, PACK_INDEX, index.encode())
            for name, path in members.items():
                _add(archive, name, path.read_bytes())
                if path.name == MANIFEST:
                    say(f"{path.parent.name} {read_manifest(path).title}")
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
    found: dict[str, list[str]] = {"new": [], "same": [], "different": []}
    with opened(file, store.directory / f".unpacking-{os.getpid()}") as folder:
        for run in sorted(path.parent for path in folder.glob(f"*/{MANIFEST}")):
            found[_take(store, run)].append(run.name)
    return Unpacked(*(tuple(found[name]) for name in ("new", "same", "different")))


@contextlib.contextmanager
def opened(file: Path, scratch: Path) -> Iterator[Path]:
    """A pack's content below ``scratch``, checked, until the block ends. Raises as `unpack`."""
    try:
        try:
            with tarfile.open(file, "r:xz") as archive:
                _extract(archive, _read_index(archive), scratch)
        except FileNotFoundError as error:
            raise UserError(f"there is no {file}") from error
        except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, ValueError) as error:
            raise UserError(
                f"{file} is no pack of runs, or damaged: {error}",
                "get it anew; nothing was taken from it",
            ) from error
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def opened_together(files: Sequence[Path], scratch: Path) -> Iterator[Path]:
    """The content of packs as if it were that of one, until the block ends.

    A run of several of them counts once, and the seeds of one experiment come together in its
    study.

    Raises:
        UserError: as `unpack`; a run has other records in another pack; two studies of one
            experiment differ in more than their seeds and the machine.
    """
    with contextlib.ExitStack() as stack:
        whole, *others = (
            stack.enter_context(opened(file, scratch.with_name(f"{scratch.name}-{number}")))
            for number, file in enumerate(files)
        )
        for part, file in zip(others, files[1:], strict=True):
            for run in sorted(path.parent for path in part.glob(f"*/{MANIFEST}")):
                if not (whole / run.name).exists():
                    run.rename(whole / run.name)
                elif _records(run) != _records(whole / run.name):
                    raise UserError(f"{run.name} has other records in {file} than in {files[0]}")
            for study in sorted((part / STUDIES).glob("*.json")):
                _add_study(whole / STUDIES / study.name, study, file)
        yield whole


def part_of_study(study: Study, seeds: Iterable[int]) -> Study:
    """A study of these seeds alone, which `opened_together` can put beside its others."""
    kept = sorted(set(seeds) & set(study.asked["seeds"]))
    used = [run for run in study.provenance.get("runs", []) if run["seed"] in kept]
    return study.model_copy(
        update={
            "asked": {**study.asked, "seeds": kept},
            "provenance": {**study.provenance, "runs": used},
            "runs": tuple(run for run in study.runs if run.seed in kept),
        }
    )


def _add_study(target: Path, study: Path, file: Path) -> None:
    """Add the seeds and runs of a study to those of ``target``."""
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        study.rename(target)
        return
    one, other = load_study(target), load_study(study)
    if _set_up(one) != _set_up(other):
        raise UserError(
            f"{target.stem} in {file} is not the experiment of that name in the files before",
            "levels, variants, engine, Tor and everything else but seeds have to be the same",
        )
    there = {run.run_id for run in one.runs}
    used = list(one.provenance.get("runs", []))
    described = {run["run_id"] for run in used}
    used += [r for r in other.provenance.get("runs", []) if r["run_id"] not in described]
    together = {
        "asked": {**one.asked, "seeds": sorted({*one.asked["seeds"], *other.asked["seeds"]})},
        "runs": (*one.runs, *(run for run in other.runs if run.run_id not in there)),
        "provenance": {**one.provenance, "runs": used},
    }
    write_study(target, one.model_copy(update=together))


def _set_up(study: Study) -> Study:
    """All of a study that two parts of it have in common."""
    return study.model_copy(
        update={
            "asked": {**study.asked, "seeds": None},
            "provenance": {**study.provenance, "machine": None, "runs": None},
            "runs": (),
        }
    )


def _files(run: Path, *, logs: bool) -> list[str]:
    """The manifest comes first: what is made from it must not be older."""
    wanted = run.rglob("*") if logs else [*run.glob("*.json"), *run.glob(RECORD_FILES)]
    paths = {path.relative_to(run).as_posix() for path in wanted if path.is_file()}
    return [MANIFEST, *sorted(paths - {MANIFEST})]


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o644
    archive.addfile(member, io.BytesIO(content))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_index(archive: tarfile.TarFile) -> dict[str, str]:
    """Name -> SHA-256. Raises ValueError."""
    member = archive.next()
    if member is None or member.name != PACK_INDEX or member.size > LARGEST_INDEX_BYTES:
        raise ValueError(f"it does not begin with {PACK_INDEX}")
    try:
        index = PackIndex.model_validate_json(_content(archive, member))
    except ValidationError as error:
        problems = "; ".join(problems_of(error, "index"))
        raise ValueError(f"{PACK_INDEX} is not valid: {problems}") from None
    for name in index.files:
        folder, *rest = PurePosixPath(name).parts
        of_run = _RUN_ID.fullmatch(folder) and rest and ".." not in rest
        of_study = folder == STUDIES and len(rest) == 1 and _STUDY.fullmatch(rest[0])
        if not (of_run or of_study):
            raise ValueError(f"{name!r} is no file of a run")
    return index.files


def _extract(archive: tarfile.TarFile, index: Mapping[str, str], scratch: Path) -> None:
    """Write all files of the index below ``scratch``. Raises ValueError."""
    missing = set(index)
    while (member := archive.next()) is not None:
        if member.name not in missing:
            raise ValueError(f"{member.name!r} is not in its index")
        content = _content(archive, member)
        if hashlib.sha256(content).hexdigest() != index[member.name]:
            raise ValueError(f"{member.name} was changed")
        missing.remove(member.name)
        (scratch / member.name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / member.name).write_bytes(content)
    if missing:
        raise ValueError(f"{len(missing)} files are missing, such as {min(missing)}")
    for run_id in {name.partition("/")[0] for name in index} - {STUDIES}:
        if f"{run_id}/{MANIFEST}" not in index:
            raise ValueError(f"{run_id} has no manifest")
        if _manifest(scratch / run_id).identity_hash != run_id:
            raise ValueError(f"the manifest of {run_id} describes another run")


def _manifest(run: Path) -> Manifest:
    """The manifest of a run that may be damaged. Raises ValueError."""
    try:
        return read_manifest(run / MANIFEST)
    except AnalysisError as error:
        raise ValueError(error.message) from error


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member) if member.isfile() else None
    if stream is None:
        raise ValueError(f"{member.name!r} is no file")
    return stream.read()


def _take(store: Store, unpacked: Path) -> str:
    """Move one run into the store; says which of `Unpacked` it is."""
    target = store.run(unpacked.name)
    with store.exclusive(unpacked.name):
        if not store.is_finished(unpacked.name):
            store.remove_unfinished(unpacked.name)
            unpacked.rename(target)
            return "new"
        return "same" if _records(unpacked) == _records(target) else "different"


def _records(run: Path) -> dict[str, str]:
    return {
        path.relative_to(run).as_posix(): _sha256(path)
        for path in run.glob(RECORD_FILES)
        if path.suffix == ".parquet"
    }
