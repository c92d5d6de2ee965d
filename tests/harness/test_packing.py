"""Runs in one file: what went in comes out, and nothing else ever reaches the store."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.errors import AnalysisError
from analysis.formats.files import MANIFEST, RECORDS, STUDIES
from analysis.formats.files import PACK_INDEX as INDEX
from analysis.formats.json_files import read_json, write_json
from analysis.formats.manifest import Manifest, identity_hash
from analysis.formats.plan_file import PlannedRun, Request, Resources
from analysis.formats.study import (
    Level,
    Looks,
    PlannedLooks,
    Run,
    Study,
    Variant,
    load_study,
    write_study,
)
from analysis.records.extract import extract
from onionlab.cli import main
from onionlab.commands import pack as pack_command
from onionlab.errors import UserError
from onionlab.runs.packed_studies import add_study
from onionlab.runs.packing import Unpacked, opened, opened_together, pack, unpack
from onionlab.runs.plan import Plan, write_plan
from onionlab.runs.store import Store

from .whole_runs import write_records, write_streams


def make_run(store: Store, name: str) -> str:
    """A finished run, unless it is there."""
    identity = {"files": {"conf/torrc": name}}
    run_id = identity_hash(identity)
    if store.is_finished(run_id):
        return run_id
    partial = store.partial(run_id)
    for path, content in {
        "run.json": "{}",
        "shadow.data/hosts/web1/tgen.1000.stdout": f"log of {name}",
        "uml.log": "boot",
    }.items():
        (partial / path).parent.mkdir(parents=True, exist_ok=True)
        (partial / path).write_text(content)
    write_records(partial / "records-v1", name)
    store.finish(run_id, Manifest(run_id=run_id, identity=identity, title=name))
    return run_id


def study_of(name: str, runs: dict[int, str], **changes: Any) -> Study:
    """A study of one level and variant; seed -> run."""
    look = {"color": "#000000", "marker": "o", "linestyle": "-"}
    made = Study(
        format=1,
        name=name,
        title=name,
        variants=(Variant(name="stock", label="stock", **look),),
        levels=(
            Level(
                name="only",
                label="only",
                measured_start_s=1,
                measured_end_s=2,
                stop_s=3,
                classes={},
            ),
        ),
        runs=tuple(
            Run(
                run_id=run_id,
                level="only",
                variant="stock",
                seed=seed,
                directory=run_id,
                records=f"{run_id}/records-v1",
            )
            for seed, run_id in runs.items()
        ),
        asked={"seeds": sorted(runs), "scale": 1.0},
        provenance={
            "engine": {"name": "uml"},
            "machine": {"cpu": f"of seeds {sorted(runs)}"},
            "runs": [
                {"run_id": run_id, "seed": seed, "cpu_s": seed} for seed, run_id in runs.items()
            ],
        },
    )
    return made.model_copy(update=changes)


@pytest.fixture
def here(tmp_path: Path) -> Store:
    return Store(tmp_path / "here" / "runs")


@pytest.fixture
def there(tmp_path: Path) -> Store:
    return Store(tmp_path / "there" / "runs")


def packed(store: Store, folder: Path, *names: str, logs: bool = False) -> tuple[Path, list[str]]:
    run_ids = [make_run(store, name) for name in names]
    file = folder / "runs.tar.xz"
    assert pack(store, [*run_ids, "0" * 16], file, logs=logs, say=print) == len(names)
    return file, sorted(run_ids)


def content(store: Store) -> dict[str, bytes]:
    """Everything that is in a store but locks."""
    return {
        path.relative_to(store.directory).as_posix(): path.read_bytes()
        for path in store.directory.rglob("*")
        if path.is_file() and ".locks" not in path.parts
    }


def test_what_went_in_comes_out(here: Store, there: Store, tmp_path: Path) -> None:
    file, run_ids = packed(here, tmp_path, "rr seed 1", "rr seed 2", logs=True)
    assert unpack(there, file) == Unpacked(tuple(run_ids), (), ())
    assert content(there) == content(here)
    assert unpack(there, file) == Unpacked((), tuple(run_ids), ())


def test_without_logs_only_what_reports_read(here: Store, there: Store, tmp_path: Path) -> None:
    file, (run_id,) = packed(here, tmp_path, "rr seed 1")
    unpack(there, file)
    assert {name.partition("/")[2] for name in content(there)} == {
        MANIFEST,
        "run.json",
        "records-v1/goodput.parquet",
        "records-v1/parse.json",
        "records-v1/streams.parquet",
    }
    with pytest.raises(AnalysisError, match="has neither its logs") as refused:
        extract(there.run(run_id), there.run(run_id) / "records-v2")
    assert str(refused.value.hint).endswith(f"rm -r {there.run(run_id)}")


def test_the_same_runs_make_the_same_bytes(here: Store, there: Store, tmp_path: Path) -> None:
    file, run_ids = packed(here, tmp_path, "a", "b", "c")
    unpack(there, file)
    again = tmp_path / "again" / "runs.tar.xz"
    pack(there, reversed(run_ids), again, logs=False, say=print)
    assert again.read_bytes() == file.read_bytes()


def test_a_manifest_is_not_newer_than_its_records(
    here: Store, there: Store, tmp_path: Path
) -> None:
    """Otherwise the workflow would read the logs anew, which may not be there."""
    file, (run_id,) = packed(here, tmp_path, "rr seed 1")
    unpack(there, file)
    records = there.run(run_id) / "records-v1" / "parse.json"
    assert there.manifest(run_id).stat().st_mtime_ns <= records.stat().st_mtime_ns


def test_other_records_of_the_same_run_are_kept_and_named(
    here: Store, there: Store, tmp_path: Path
) -> None:
    file, (run_id,) = packed(here, tmp_path, "rr seed 1")
    make_run(there, "rr seed 1")
    own = there.run(run_id) / "records-v1" / "streams.parquet"
    write_streams(own, "measured here")
    before = own.read_bytes()
    assert unpack(there, file) == Unpacked((), (), (run_id,))
    assert own.read_bytes() == before


def test_records_that_are_about_to_be_extracted_are_not_other_records(
    here: Store, there: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of an experiment that is being made: its logs are there, and not read yet."""
    file, (run_id,) = packed(here, tmp_path, "rr seed 1")
    make_run(there, "rr seed 1")
    shutil.rmtree(there.run(run_id) / RECORDS)
    (there.run(run_id) / RECORDS / ".extract-by-another").mkdir(parents=True)
    monkeypatch.setattr(
        "onionlab.runs.packing.extract", lambda run, out: write_records(out, "rr seed 1")
    )
    assert unpack(there, file) == Unpacked((), (run_id,), ())
    assert there.run(run_id).joinpath("shadow.data").is_dir()


def test_a_run_that_was_interrupted_here_is_replaced(
    here: Store, there: Store, tmp_path: Path
) -> None:
    file, (run_id,) = packed(here, tmp_path, "rr seed 1")
    (there.run(run_id) / "conf").mkdir(parents=True)
    assert unpack(there, file).new == (run_id,)
    assert not (there.run(run_id) / "conf").exists()


def test_studies_come_along_and_are_no_runs(here: Store, there: Store, tmp_path: Path) -> None:
    run_id = make_run(here, "rr seed 1")
    for name in ("quick", "swrr-5mid"):
        write_study(tmp_path / name / "study.json", study_of(name, {1: run_id}))
    studies = [tmp_path / name / "study.json" for name in ("swrr-5mid", "quick")]
    file = tmp_path / "runs.tar.xz"
    pack(here, [run_id], file, studies=studies, logs=False, say=print)
    with opened(file, tmp_path / "open") as folder:
        assert load_study(folder / "studies" / "quick.json") == study_of("quick", {1: run_id})
        assert (folder / run_id / MANIFEST).is_file()
        assert len(list((folder / "studies").iterdir())) == 2
    assert not list((tmp_path / "open").iterdir())
    assert unpack(there, file).new == (run_id,)
    assert {name.partition("/")[0] for name in content(there)} == {run_id}


def test_no_finished_run_is_no_pack(here: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none of these runs is finished"):
        pack(here, ["0" * 16], tmp_path / "runs.tar.xz", logs=False, say=print)
    assert not (tmp_path / "runs.tar.xz").exists()


# ----- published packs


def published(store: Store, folder: Path, *names: str) -> tuple[Path, list[str]]:
    run_ids = [make_run(store, name) for name in names]
    study, file = folder / "study.json", folder / "published.tar.xz"
    write_study(study, study_of("quick", dict(enumerate(run_ids, 1))))
    pack(store, run_ids, file, studies=[study], logs=False, published=True, say=print)
    return file, sorted(run_ids)


def test_a_published_pack_never_comes_into_a_store(
    here: Store, there: Store, tmp_path: Path
) -> None:
    file, (run_id, _) = published(here, tmp_path, "rr seed 1", "rr seed 2")
    make_run(there, "rr seed 1")
    before = content(there)
    with pytest.raises(UserError, match="is a published pack") as refused:
        unpack(there, file)
    assert "make figures PACKS" in str(refused.value.hint)
    assert content(there) == before
    with opened(file, tmp_path / "open") as folder:
        assert sorted(path.name for path in (folder / run_id).iterdir()) == [MANIFEST, "records-v1"]


def test_who_takes_a_published_run_into_a_store_by_hand_gets_the_whole_one_from_a_pack(
    here: Store, there: Store, tmp_path: Path
) -> None:
    file, (run_id,) = published(here, tmp_path, "rr seed 1")
    whole, _ = packed(here, tmp_path, "rr seed 1")
    with opened(file, tmp_path / "open") as folder:
        shutil.copytree(folder / run_id, there.run(run_id))
    assert unpack(there, whole).new == (run_id,)
    assert content(there) == {
        name: data
        for name, data in content(here).items()
        if "hosts" not in name and ".log" not in name
    }


def test_the_same_runs_make_the_same_published_bytes(here: Store, tmp_path: Path) -> None:
    file, _ = published(here, tmp_path, "a", "b")
    before = file.read_bytes()
    assert published(here, tmp_path, "a", "b")[0].read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_run_in_two_packs_the_whole_one_is_read(
    here: Store, tmp_path: Path, order: int
) -> None:
    small, (run_id,) = published(here, tmp_path, "rr seed 1")
    large, _ = packed(here, tmp_path, "rr seed 1")
    with opened_together([small, large][::order], tmp_path / "open") as folder:
        assert (folder / run_id / "records-v1" / "goodput.parquet").is_file()
    write_streams(here.run(run_id) / "records-v1" / "streams.parquet", "made otherwise")
    pack(here, [run_id], large, logs=False, say=print)
    with (
        pytest.raises(UserError, match="has other records in"),
        opened_together([small, large][::order], tmp_path / "open"),
    ):
        pass


def test_runs_that_cannot_be_published_are_named(here: Store, tmp_path: Path) -> None:
    _, (run_id,) = published(here, tmp_path, "rr seed 1")
    file = tmp_path / "none.tar.xz"
    with pytest.raises(UserError, match=f"{run_id} is of no study"):
        pack(here, [run_id], file, logs=False, published=True, say=print)
    shutil.rmtree(here.run(run_id) / "records-v1")
    study = [tmp_path / "study.json"]
    with pytest.raises(UserError, match=f"{run_id} cannot be published: .*is missing"):
        pack(here, [run_id], file, studies=study, logs=False, published=True, say=print)
    assert not file.exists()


Members = dict[str, bytes]


def rewritten(file: Path, change: Callable[[Members, str], None], run_id: str) -> Path:
    with tarfile.open(file) as archive:
        members: Members = {}
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            assert stream
            members[member.name] = stream.read()
    change(members, run_id)
    with tarfile.open(file, "w:xz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file


def of_index(edit: Callable[[dict[str, Any]], object]) -> Callable[[Members, str], None]:
    def change(members: Members, run_id: str) -> None:
        index = json.loads(members[INDEX])
        edit(index)
        members[INDEX] = json.dumps(index).encode()

    return change


def renamed(members: Members, run_id: str) -> None:
    """As the run of another hash, the index rightly so."""
    other = "0" * 16
    members[INDEX] = members[INDEX].replace(run_id.encode(), other.encode())
    for name in [name for name in members if name.startswith(run_id)]:
        members[name.replace(run_id, other)] = members.pop(name)


def without_manifest(members: Members, run_id: str) -> None:
    del members[f"{run_id}/{MANIFEST}"]
    index = json.loads(members[INDEX])
    del index["files"][f"{run_id}/{MANIFEST}"]
    members[INDEX] = json.dumps(index).encode()


def of_file(name: str, content: bytes | None) -> Callable[[Members, str], None]:
    """Another content of a file of the run, or none, of which index and manifest know."""

    def change(members: Members, run_id: str) -> None:
        index = json.loads(members[INDEX])
        if content is None:
            del members[f"{run_id}/{name}"], index["files"][f"{run_id}/{name}"]
        else:
            members[f"{run_id}/{name}"] = content
            index["files"][f"{run_id}/{name}"] = hashlib.sha256(content).hexdigest()
        members[INDEX] = json.dumps(index).encode()

    return change


def manifest_alone(members: Members, run_id: str) -> None:
    """As somebody might cut a pack down."""
    kept = f"{run_id}/{MANIFEST}"
    index = {"format": 1, "files": {kept: json.loads(members[INDEX])["files"][kept]}}
    manifest = members[kept]
    members.clear()
    members.update({INDEX: json.dumps(index).encode(), kept: manifest})


DEEP = b"[" * 200_000


def climbing(members: Members, run_id: str) -> None:
    members[INDEX] = members[INDEX].replace(b"/run.json", b"/../../../outside")
    members[f"{run_id}/../../../outside"] = members.pop(f"{run_id}/run.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, r: m.update({f"{r}/run.json": b"{ }"}), "run.json was changed"),
        (lambda m, r: m.pop(f"{r}/run.json"), "1 files are missing, such as"),
        (lambda m, r: m.update({f"{r}/more": b""}), "is not in its index"),
        (lambda m, r: m.pop(INDEX), "does not begin with index.json"),
        (of_index(lambda index: index.update(format=3)), "index.json is not valid: format: "),
        (of_index(lambda index: index.update(format=2)), "has not manifest.json and records-v1/"),
        (of_file("records-v1/published.json", b"{}"), "is of a published pack, and not whole"),
        (of_index(lambda index: index.pop("files")), "index.json is not valid: files: "),
        (of_index(lambda index: index.update(files={"x/a": ""})), "'x/a' is no file of a run"),
        (of_index(lambda index: index.update(files={"/etc/x": ""})), "is no file of a run"),
        (of_index(lambda index: index.update(files={"studies/a/b.json": ""})), "is no file of a"),
        (without_manifest, "has no manifest"),
        (renamed, "describes another run"),
        (climbing, "is no file of a run"),
        (manifest_alone, "has neither records nor logs"),
        (of_file("records-v1/parse.json", None), "parse.json is missing"),
        (of_file("records-v1/streams.parquet", None), "streams.parquet is missing"),
        (of_file("records-v1/goodput.parquet", b"PAR1"), "goodput.parquet cannot be read"),
        (of_file("records-v1/parse.json", DEEP), "parse.json is not valid JSON: recursion limit"),
        (of_file(MANIFEST, DEEP), "manifest.json is not valid JSON: recursion limit exceeded"),
        (lambda m, r: m.update({INDEX: DEEP}), "index.json is not valid JSON: recursion limit"),
        (lambda m, r: m.update({INDEX: b"\xff"}), "index.json is not valid JSON"),
        (of_index(lambda index: index.update(files={"": ""})), "'' is no file of a run"),
        (of_index(lambda index: index.update(files={"studies/a\n.json": ""})), "is no file of a"),
        (of_index(lambda index: index.update(files={"0" * 16 + "/a" * 16: ""})), "is no file of"),
        (of_index(lambda index: index.update(files={f"{0:016}/{'a' * 999}": ""})), "is no file of"),
        (
            of_index(lambda i: i["files"].update({f"{min(i['files'])}/x": ""})),
            "is no file of a run",
        ),
    ],
)
def test_what_is_no_sound_pack_leaves_the_store_as_it_was(
    here: Store,
    there: Store,
    tmp_path: Path,
    change: Callable[[Members, str], None],
    message: str,
) -> None:
    file, (run_id,) = packed(here, tmp_path, "rr seed 1")
    rewritten(file, change, run_id)
    make_run(there, "another")
    before = content(there)
    with pytest.raises(UserError, match=message) as refused:
        unpack(there, file)
    assert len(refused.value.message) < 400 + len(str(file))
    assert str(there.directory) not in refused.value.message
    assert content(there) == before
    assert not (tmp_path / "outside").exists()


class Zeros:
    """A file of nothing but zeros."""

    def read(self, size: int) -> bytes:
        return bytes(size)


def member(name: str, size_bytes: int, kind: bytes = tarfile.REGTYPE, **facts: str) -> Any:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.pax_headers = size_bytes, kind, facts
    return made


@pytest.mark.parametrize(
    ("large", "message"),
    [
        (member("0" * 16 + "/a", 200 * 2**20), "holds more than 64 MiB, the limit for its size"),
        (member(INDEX, 200 * 2**20), "it holds more than 16 MiB"),
        (member("x", 200 * 2**20, tarfile.XHDTYPE), "holds more than 0.0625 MiB"),
        (member("x", 200 * 2**20, tarfile.GNUTYPE_LONGNAME), "is no file"),
        (member("x", 0, tarfile.GNUTYPE_SPARSE), "is no file"),
        (member("0" * 16 + "/a", 10**9, size=str(2**40)), "holds more than 64 MiB"),
    ],
)
def test_a_pack_that_holds_too_much_is_left_unread(
    there: Store, tmp_path: Path, large: tarfile.TarInfo, message: str
) -> None:
    """A fifth of a gigabyte in thirty kilobytes: nothing of it comes to memory as a whole."""
    index = json.dumps({"files": {"0" * 16 + "/a": "0" * 64}}).encode()
    with tarfile.open(tmp_path / "large.tar.xz", "w:xz", preset=1) as archive:
        if large.name != INDEX:
            archive.addfile(member(INDEX, len(index)), io.BytesIO(index))
        if large.pax_headers or large.type == tarfile.GNUTYPE_SPARSE:
            archive.addfile(large)
        else:
            archive.addfile(large, Zeros())  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=message):
            unpack(there, tmp_path / "large.tar.xz")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert not content(there)


def large_pack(file: Path, sizes_bytes: list[int]) -> Path:
    """A pack of one run with files of nothing but zeros, and right hashes."""
    names = [f"{'0' * 16}/{number}" for number in range(len(sizes_bytes))]
    hashes = [hashlib.sha256(bytes(size)).hexdigest() for size in sizes_bytes]
    index = json.dumps({"files": dict(zip(names, hashes, strict=True))}).encode()
    with tarfile.open(file, "w:xz", preset=1) as archive:
        archive.addfile(member(INDEX, len(index)), io.BytesIO(index))
        for name, size in zip(names, sizes_bytes, strict=True):
            archive.addfile(member(name, size), Zeros())  # type: ignore[arg-type]
    return file


@pytest.mark.parametrize(
    ("sizes_mib", "message"),
    [([40], "has no manifest"), ([30, 30, 30], "holds more than 64 MiB, the limit for its size")],
)
def test_a_large_pack_is_unpacked_in_pieces(
    there: Store, tmp_path: Path, sizes_mib: list[int], message: str
) -> None:
    """Neither a file of it nor all of them together come to memory or, beyond a limit, to disk."""
    file = large_pack(tmp_path / "large.tar.xz", [size * 2**20 for size in sizes_mib])
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=message):
            unpack(there, file)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert not content(there)


def test_what_a_broken_pack_left_is_replaced(here: Store, there: Store, tmp_path: Path) -> None:
    file, (run_id,) = packed(here, tmp_path, "rr seed 1")
    for broken in ("records-v1", "records-v1/streams.parquet", "records-v1/parse.json"):
        shutil.copytree(here.run(run_id), there.run(run_id), dirs_exist_ok=True)
        shutil.rmtree(there.run(run_id) / "shadow.data")
        if (there.run(run_id) / broken).is_dir():
            shutil.rmtree(there.run(run_id) / broken)
        else:
            (there.run(run_id) / broken).write_bytes(b"broken")
        assert unpack(there, file).new == (run_id,), broken
        assert unpack(there, file).same == (run_id,)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_a_cut_pack(here: Store, there: Store, tmp_path: Path, share: float) -> None:
    file, _ = packed(here, tmp_path, "a", "b")
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match="no pack of runs, or damaged"):
        unpack(there, file)
    assert not content(there)


def test_what_a_killed_command_left_goes(here: Store, there: Store, tmp_path: Path) -> None:
    """Whatever the number of its process: in containers it is the same again and again."""
    file, (run_id,) = packed(here, tmp_path, "rr seed 1")
    left = there.directory / f".unpacking-{os.getpid()}" / run_id / MANIFEST
    left.parent.mkdir(parents=True)
    left.write_text("half of one")
    assert unpack(there, file).new == (run_id,)
    assert not list(there.directory.glob(".unpacking-*"))


def test_two_commands_unpack_side_by_side(here: Store, tmp_path: Path) -> None:
    file, (run_id,) = packed(here, tmp_path, "rr seed 1")
    with opened(file, tmp_path / "scratch") as one, opened(file, tmp_path / "scratch") as other:
        assert one != other
        assert (one / run_id / MANIFEST).is_file()
        assert (other / run_id / MANIFEST).is_file()


def test_a_file_that_is_not_there(there: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no"):
        unpack(there, tmp_path / "nothing.tar.xz")


def test_a_manifest_that_does_not_describe_its_run(
    here: Store, there: Store, tmp_path: Path
) -> None:
    run_id = make_run(here, "rr seed 1")
    write_json(here.manifest(run_id), {**read_json(here.manifest(run_id)), "identity": {}})
    pack(here, [run_id], tmp_path / "runs.tar.xz", logs=False, say=print)
    with pytest.raises(UserError, match="describes another run"):
        unpack(there, tmp_path / "runs.tar.xz")


def part(store: Store, folder: Path, seed: int, **changes: Any) -> tuple[Path, str]:
    """A pack of one seed of a study."""
    run_id = make_run(store, f"seed {seed}")
    write_study(folder / f"study-{seed}.json", study_of("small", {seed: run_id}, **changes))
    file = folder / f"seed-{seed}.tar.xz"
    pack(store, [run_id], file, studies=[folder / f"study-{seed}.json"], logs=False, say=print)
    return file, run_id


def test_parts_of_a_study_come_together(here: Store, tmp_path: Path) -> None:
    (second, run_2), (first, run_1), (third, run_3) = (part(here, tmp_path, n) for n in (2, 1, 3))
    with opened_together([second, first, third, second], tmp_path / "scratch") as folder:
        study = load_study(folder / STUDIES / "small.json")
        assert study.asked == {"seeds": [1, 2, 3], "scale": 1.0}
        assert [run.run_id for run in study.runs] == [run_2, run_1, run_3]
        used = study.provenance["runs"]
        assert [run["run_id"] for run in used] == [run_2, run_1, run_3]
        for run_id in (run_1, run_2, run_3):
            (records,) = folder.glob(f"{run_id}/records-*")
            assert (records / "streams.parquet").is_file()
    assert not list(tmp_path.glob("scratch/*"))


def test_parts_may_have_been_looked_at(here: Store, tmp_path: Path) -> None:
    looks = Looks((3,), 3, (PlannedLooks((2,), 2),))
    (one, _), (two, _) = part(here, tmp_path, 1, looks=looks), part(here, tmp_path, 2)
    (three, _) = part(here, tmp_path, 3)
    for files in ([one, two, three], [three, two, one]):
        with opened_together(files, tmp_path / "scratch") as folder:
            study = load_study(folder / STUDIES / "small.json")
            assert study.looks == Looks((3,), 3, (PlannedLooks((2,), 2),))


def test_repeats_are_counted_where_there_is_one_network(tmp_path: Path) -> None:
    looks = Looks((2,), 2, (PlannedLooks((1,), 1),))
    study = study_of("small", {1: "0" * 16}, scope="one-network", looks=looks)
    (run,) = study.runs
    second = run.model_copy(update={"run_id": "1" * 16, "repeat": 2})
    for name in ("one", "two"):
        write_study(tmp_path / name, study.model_copy(update={"runs": (run, second)}))
    add_study(tmp_path / "one", tmp_path / "two", tmp_path)
    assert load_study(tmp_path / "one").looks == looks


@pytest.mark.parametrize(
    "changes",
    [
        {"asked": {"seeds": [2], "scale": 0.1}},
        {"provenance": {"engine": {"name": "shadow"}, "machine": {}}},
        {"title": "another"},
    ],
)
def test_what_is_no_part_of_the_same_study_is_refused(
    here: Store, tmp_path: Path, changes: dict[str, object]
) -> None:
    one, _ = part(here, tmp_path, 1)
    other, _ = part(here, tmp_path, 2, **changes)
    with (
        pytest.raises(UserError, match=r"small in .*seed-2.* is not the experiment"),
        opened_together([one, other], tmp_path / "scratch"),
    ):
        pass
    assert not list(tmp_path.glob("scratch/*"))


def test_what_was_planned_and_not_made_stands_in_nobodys_way(here: Store, tmp_path: Path) -> None:
    """A pack of one experiment names the others of its paper too, as they would have been made."""
    (made, run_id), (one, _) = part(here, tmp_path, 1), part(here, tmp_path, 3)
    planned = study_of("small", {1: "0123456789abcdef"}, title="with an older engine")
    write_study(tmp_path / "planned.json", planned)
    other = make_run(here, "of another experiment")
    older = tmp_path / "older.tar.xz"
    pack(here, [other], older, studies=[tmp_path / "planned.json"], logs=False, say=print)
    for files in ([older, made, one], [made, older, one]):
        with opened_together(files, tmp_path / "scratch") as folder:
            study = load_study(folder / STUDIES / "small.json")
            assert study.asked["seeds"] == [1, 3]
            assert study.runs[0].run_id == run_id
            assert study.title != planned.title
    with opened_together([older, older], tmp_path / "scratch") as folder:
        assert load_study(folder / STUDIES / "small.json") == planned


def level(**changes: Any) -> Level:
    return study_of("small", {}).levels[0].model_copy(update=changes)


def test_what_a_later_version_tells_of_a_level_makes_it_no_other(
    here: Store, tmp_path: Path
) -> None:
    told = level(relays={"middle": 1}, capacities_bytes_per_s={"middle": 9.5e5})
    one, _ = part(here, tmp_path, 1)
    other, _ = part(here, tmp_path, 2, levels=(told,))
    for files in ([one, other], [other, one]):
        with opened_together(files, tmp_path / "scratch") as folder:
            assert len(load_study(folder / STUDIES / "small.json").runs) == 2


@pytest.mark.parametrize(
    "levels",
    [
        (level(stop_s=4.0),),
        (level(), level(name="second")),
        (level(capacities_bytes_per_s={"middle": 1.0}),),
    ],
)
def test_levels_that_differ_are_refused(
    here: Store, tmp_path: Path, levels: tuple[Level, ...]
) -> None:
    one, _ = part(here, tmp_path, 1, levels=(level(capacities_bytes_per_s={"middle": 2.0}),))
    other, _ = part(here, tmp_path, 2, levels=levels)
    with (
        pytest.raises(UserError, match=r"small in .*seed-2.* is not the experiment"),
        opened_together([one, other], tmp_path / "scratch"),
    ):
        pass


def test_one_run_with_other_records_is_refused(here: Store, there: Store, tmp_path: Path) -> None:
    file, run_id = part(here, tmp_path, 1)
    one = file.rename(tmp_path / "one.tar.xz")
    make_run(there, "seed 1")
    (records,) = there.run(run_id).glob("records-*")
    write_streams(records / "streams.parquet", "others")
    pack(there, [run_id], tmp_path / "other.tar.xz", logs=False, say=print)
    with (
        pytest.raises(UserError, match=f"{run_id} has other records"),
        opened_together([one, tmp_path / "other.tar.xz"], tmp_path / "scratch"),
    ):
        pass


def test_the_command_packs_the_seeds_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pack_command, "working_root", lambda: tmp_path)
    store = Store(tmp_path / "runs")
    out = tmp_path / "results" / "small"
    planned = tuple(
        PlannedRun(make_run(store, f"seed {seed}"), "only", "stock", seed) for seed in (1, 2, 3)
    )
    write_plan(Plan(Request("small"), planned, store.directory, out, 1, Resources(1, 1, 1)))
    whole = study_of("small", {run.seed: run.run_id for run in planned})
    write_study(out / "study.json", whole)
    for seeds, kept in (("2", [1, 2]), ("3,", [3]), ("2,3,7", [2, 3])):
        file = tmp_path / f"{len(kept)}.tar.xz"
        assert main(["pack", "small", "--seeds", seeds, "--out", str(file)]) == 0
        with opened(file, tmp_path / "scratch") as folder:
            study = load_study(folder / STUDIES / "small.json")
            assert study.asked["seeds"] == kept
            assert study.runs == tuple(run for run in whole.runs if run.seed in kept)
            assert [run["seed"] for run in study.provenance["runs"]] == kept
            there = {path.parent.name for path in folder.glob(f"*/{MANIFEST}")}
            assert there == {run.run_id for run in study.runs}
    with opened_together([tmp_path / "2.tar.xz", tmp_path / "1.tar.xz"], tmp_path / "s") as folder:
        assert load_study(folder / STUDIES / "small.json").asked["seeds"] == [2, 3]
    assert main(["pack", "small", "--seeds", "9,"]) == 2
    assert "no run of small on these networks: 9," in capsys.readouterr().err
