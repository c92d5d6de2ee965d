"""Packs: unpacking restores the packed runs, and nothing else gets into the store."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from analysis.errors import AnalysisError
from analysis.formats.files import MANIFEST, RECORDS, STREAMS_TABLE, STUDIES
from analysis.formats.files import PACK_INDEX as INDEX
from analysis.formats.manifest import Manifest, identity_hash, read_manifest
from analysis.formats.plan_file import PlannedRun, Request, Resources
from analysis.formats.published import PackIndex
from analysis.formats.study import Level, Study, load_study, write_study
from analysis.records.extract import extract
from onionlab.cli import main
from onionlab.commands import pack as pack_command
from onionlab.errors import UserError
from onionlab.runs.packed_studies import add_study
from onionlab.runs.packing import open_pack, open_packs, pack, unpack
from onionlab.runs.plan import Plan
from onionlab.runs.store import Store

from .test_engine_comparison import study, study_runs
from .whole_runs import write_records

OTHER_ID = "0" * 16


def make_run(store: Store, name: str) -> str:
    """Return the ID of a finished run. If the store lacks the run, make it first."""
    identity = {"files": {"conf/torrc": name}}
    run_id = identity_hash(identity)
    if store.is_finished(run_id):
        return run_id
    partial = store.partial(run_id)
    (partial / "shadow.data/hosts/web1").mkdir(parents=True)
    (partial / "run.json").write_text("{}")
    (partial / "shadow.data/hosts/web1/tgen.1000.stdout").write_text(f"log of {name}")
    (partial / "uml.log").write_text("boot")
    write_records(partial / RECORDS, name)
    store.finish(run_id, Manifest(run_id=run_id, identity=identity, title=name))
    return run_id


def make_study(name: str, runs: dict[int, str], **changes: Any) -> Study:
    """Return a study of one level and variant. runs: seed -> ID of the run with this seed."""
    made = study("uml").model_copy(
        update={
            "name": name,
            "title": name,
            "runs": study_runs(
                PlannedRun(run_id, "quick", "rr", seed) for seed, run_id in runs.items()
            ),
            "asked": {"seeds": sorted(runs), "scale": 1.0},
            "provenance": {
                "engine": {"name": "uml"},
                "machine": {"cpu": f"of seeds {sorted(runs)}"},
                "runs": [{"run_id": run_id, "seed": seed} for seed, run_id in runs.items()],
            },
        }
    )
    return made.model_copy(update=changes)


class Places(NamedTuple):
    """A store with runs, another store, and a folder for packs."""

    here: Store
    there: Store
    folder: Path


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(Store(tmp_path / "here" / "runs"), Store(tmp_path / "there" / "runs"), tmp_path)


def packed(store: Store, folder: Path, *names: str, logs: bool = False) -> tuple[Path, list[str]]:
    """Return a pack of the named runs, and their sorted IDs."""
    run_ids = [make_run(store, name) for name in names]
    file = folder / "runs.tar.xz"
    assert pack(store, [*run_ids, OTHER_ID], file, logs=logs) == len(names)
    return file, sorted(run_ids)


def content(store: Store) -> dict[str, bytes]:
    """Return path -> content of all files of a store except locks."""
    return {
        path.relative_to(store.directory).as_posix(): path.read_bytes()
        for path in store.directory.rglob("*")
        if path.is_file() and ".locks" not in path.parts
    }


def test_a_pack_gives_back_all_files(places: Places) -> None:
    file, run_ids = packed(places.here, places.folder, "rr seed 1", "rr seed 2", logs=True)
    assert unpack(places.there, file) == [(run_id, "new") for run_id in run_ids]
    assert content(places.there) == content(places.here)
    assert unpack(places.there, file) == [(run_id, "same") for run_id in run_ids]
    again = places.folder / "again" / "runs.tar.xz"
    pack(places.there, reversed(run_ids), again, logs=True)
    assert again.read_bytes() == file.read_bytes()


def test_a_pack_without_logs_suffices_for_reports(places: Places) -> None:
    file, (run_id,) = packed(places.here, places.folder, "rr seed 1")
    unpack(places.there, file)
    records = {f"{RECORDS}/{name}" for name in ("goodput.parquet", "parse.json", STREAMS_TABLE)}
    found = {name.partition("/")[2] for name in content(places.there)}
    assert found == {MANIFEST, "run.json", *records}
    with pytest.raises(AnalysisError, match="has neither its logs") as refused:
        extract(places.there.run(run_id), places.there.run(run_id) / "records-v2")
    assert str(refused.value.hint).endswith(f"rm -r {places.there.run(run_id)}")


@pytest.mark.parametrize("logs", [True, False])
def test_what_a_killed_extraction_left_is_not_packed(places: Places, logs: bool) -> None:
    run = places.here.run(make_run(places.here, "a"))
    clean = packed(places.here, places.folder, "a", logs=logs)[0].read_bytes()
    left = run / RECORDS / ".extract-1" / STREAMS_TABLE
    left.parent.mkdir()
    left.write_bytes(b"half")
    (run / RECORDS / ".parse.json.part").write_bytes(b"{")
    assert packed(places.here, places.folder, "a", logs=logs)[0].read_bytes() == clean


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes()[::-1]),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
    ],
)
def test_a_file_that_changes_while_it_is_packed_is_an_error(
    places: Places, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    """Another command extracts the records after the hashes for the index have been computed."""
    run = places.here.run(make_run(places.here, "a"))

    def index(**content: Any) -> PackIndex:
        change(run / RECORDS / STREAMS_TABLE)
        return PackIndex(**content)

    monkeypatch.setattr("onionlab.runs.packing.PackIndex", index)
    with pytest.raises(UserError, match=f"{STREAMS_TABLE} has changed while it was packed"):
        packed(places.here, places.folder, "a")
    assert not (places.folder / "runs.tar.xz").exists()


def test_other_records_of_the_same_run_are_kept(places: Places) -> None:
    file, (run_id,) = packed(places.here, places.folder, "rr seed 1")
    make_run(places.there, "rr seed 1")
    write_records(places.there.run(run_id) / RECORDS, "measured here")
    before = content(places.there)
    assert unpack(places.there, file) == [(run_id, "different")]
    assert content(places.there) == before


def test_a_run_that_is_not_whole_is_replaced(places: Places) -> None:
    file, (run_id,) = packed(places.here, places.folder, "rr seed 1")
    (places.there.run(run_id) / "conf").mkdir(parents=True)
    assert unpack(places.there, file) == [(run_id, "new")]
    assert not (places.there.run(run_id) / "conf").exists()
    (places.there.run(run_id) / RECORDS / STREAMS_TABLE).write_bytes(b"broken")
    assert unpack(places.there, file) == [(run_id, "new")]
    shutil.rmtree(places.there.run(run_id) / RECORDS)
    assert unpack(places.there, file) == [(run_id, "new")]


def test_studies_are_packed_and_are_not_runs(places: Places) -> None:
    run_id = make_run(places.here, "rr seed 1")
    studies = [make_study(name, {1: run_id}) for name in ("swrr-5mid", "quick")]
    file = places.folder / "runs.tar.xz"
    pack(places.here, [run_id], file, studies=studies, logs=False)
    with open_pack(file, places.folder / "open") as folder:
        assert load_study(folder / STUDIES / "quick.json") == make_study("quick", {1: run_id})
        assert (folder / run_id / MANIFEST).is_file()
        assert len(list((folder / STUDIES).iterdir())) == 2
    assert not list((places.folder / "open").iterdir())
    assert unpack(places.there, file) == [(run_id, "new")]
    assert {name.partition("/")[0] for name in content(places.there)} == {run_id}


# ----- published packs


def published(store: Store, folder: Path, *names: str) -> tuple[Path, list[str]]:
    """Return a published pack of the named runs, and their sorted IDs."""
    run_ids = [make_run(store, name) for name in names]
    file = folder / "published.tar.xz"
    study = make_study("quick", dict(enumerate(run_ids, 1)))
    pack(store, run_ids, file, studies=[study], logs=False, published=True)
    return file, sorted(run_ids)


def test_a_published_pack_is_not_added_to_a_store(places: Places) -> None:
    file, _ = published(places.here, places.folder, "rr seed 1", "rr seed 2")
    data = file.read_bytes()
    assert published(places.here, places.folder, "rr seed 1", "rr seed 2")[0].read_bytes() == data
    assert not list(places.folder.glob(".*"))
    make_run(places.there, "rr seed 1")
    before = content(places.there)
    with pytest.raises(UserError, match="is a published pack") as refused:
        unpack(places.there, file)
    assert "make figures PACKS" in str(refused.value.hint)
    assert content(places.there) == before
    whole, (run_id,) = packed(places.here, places.folder, "rr seed 1")
    with open_pack(file, places.folder / "open") as folder:
        assert sorted(path.name for path in (folder / run_id).iterdir()) == [MANIFEST, RECORDS]
        assert read_manifest(folder / run_id / MANIFEST).log_bytes == {}
        # If someone has copied a published run into the store, unpacking still adds the full run.
        shutil.copytree(folder / run_id, places.there.run(run_id), dirs_exist_ok=True)
    assert unpack(places.there, whole) == [(run_id, "new")]


@pytest.mark.parametrize("order", [1, -1])
def test_a_run_of_two_packs_is_read_from_the_whole_one(places: Places, order: int) -> None:
    small, (run_id,) = published(places.here, places.folder, "rr seed 1")
    large, _ = packed(places.here, places.folder, "rr seed 1")
    with open_packs([small, large][::order], places.folder / "open") as folder:
        assert (folder / run_id / RECORDS / "goodput.parquet").is_file()
    write_records(places.here.run(run_id) / RECORDS, "made otherwise")
    pack(places.here, [run_id], large, logs=False)
    with (
        pytest.raises(UserError, match="has other records in"),
        open_packs([small, large][::order], places.folder / "open"),
    ):
        pass


# ----- damaged packs

Members = dict[str, bytes]
Change = Callable[[Members, str], object]


def rewrite(file: Path, change: Change, run_id: str) -> None:
    """Apply a change to the members of a pack.

    change: a function that gets name -> content of all members, and the ID of the run.
    """
    with tarfile.open(file) as archive:
        members = {}
        for one in archive.getmembers():
            stream = archive.extractfile(one)
            assert stream
            members[one.name] = stream.read()
    change(members, run_id)
    with tarfile.open(file, "w:xz") as archive:
        for name, data in members.items():
            archive.addfile(member(name, len(data)), io.BytesIO(data))


def member(name: str, size_bytes: int, kind: bytes = tarfile.REGTYPE, **facts: str) -> Any:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.pax_headers = size_bytes, kind, facts
    return made


def change_index(edit: Callable[[dict[str, Any]], object]) -> Change:
    def change(members: Members, run_id: str) -> None:
        index = json.loads(members[INDEX])
        edit(index)
        members[INDEX] = json.dumps(index).encode()

    return change


def rename_run(members: Members, run_id: str) -> None:
    members[INDEX] = members[INDEX].replace(run_id.encode(), OTHER_ID.encode())
    for name in [name for name in members if name.startswith(run_id)]:
        members[name.replace(run_id, OTHER_ID)] = members.pop(name)


def change_file(name: str, data: bytes | None) -> Change:
    """Return a change that adds, replaces or removes a member of a pack, and updates the index.

    name: the member's name, in which RUN stands for the ID of the run. data: the member's content,
    or None to remove the member.
    """

    def change(members: Members, run_id: str) -> None:
        path = name.replace("RUN", run_id)
        index = json.loads(members[INDEX])
        if data is None:
            del members[path], index["files"][path]
        else:
            members[path] = data
            index["files"][path] = hashlib.sha256(data).hexdigest()
        members[INDEX] = json.dumps(index).encode()

    return change


def change_older_file(name: str, data: bytes | None) -> Change:
    """Return a change like that of ``change_file``, which also makes the pack's records older.

    In older records, parse.json does not list the tables.
    """

    def change(members: Members, run_id: str) -> None:
        change_file("RUN/records-v1/parse.json", b'{"format": 1}')(members, run_id)
        change_file(name, data)(members, run_id)

    return change


def keep_manifest_only(members: Members, run_id: str) -> None:
    for name in set(members) - {INDEX, f"{run_id}/{MANIFEST}"}:
        change_file(name, None)(members, run_id)


DEEP = b"[" * 200_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, r: m.update({f"{r}/run.json": b"{ }"}), "run.json was changed"),
        (lambda m, r: m.pop(f"{r}/run.json"), "run.json is missing"),
        (lambda m, r: m.update({f"{r}/more": b""}), "/more' is unexpected: index.json"),
        (lambda m, r: m.pop(INDEX), "manifest.json' is unexpected: index.json, the first"),
        (lambda m, r: m.update({INDEX: DEEP}), "index.json is not valid JSON: recursion limit"),
        (change_index(lambda index: index.update(format=3)), "is not a valid index: format: "),
        (change_index(lambda index: index.pop("files")), "is not a valid index: files: "),
        (lambda m, r: m.update({INDEX: m.pop(INDEX)}), "is unexpected: index.json, the first"),
        (change_file(f"{OTHER_ID}/a", b""), f"{OTHER_ID}/manifest.json is missing"),
        (change_file("studies", b""), "is not a file of a run"),
        (change_file("studies/sub/x.json", b""), "is not a file of a run"),
        (change_file("studies/.json", b""), "is not a file of a run"),
        (change_file("../outside", b""), "is not a file of a run"),
        (change_file(f"{OTHER_ID}/../../../outside", b""), "is not a file of a run"),
        (change_file(f"{OTHER_ID}//a", b""), "is not a file of a run"),
        (change_file(OTHER_ID + "/a" * 16, b""), "is not a file of a run"),
        (change_file(f"{OTHER_ID}/a\n", b""), "is not a file of a run"),
        (change_file(f"{OTHER_ID}/{'a' * 256}", b""), "is not a file of a run"),
        (change_file(f"{OTHER_ID}/{'ä' * 200}", b""), "is not a file of a run"),
        (change_file(OTHER_ID + f"/{'a' * 250}" * 5, b""), "is not a file of a run"),
        (change_file("RUN/run.json/x", b""), "is not a file of a run"),
        (change_file(f"RUN/{MANIFEST}", None), "manifest.json is missing"),
        (change_file(f"RUN/{MANIFEST}", DEEP), "manifest.json is not valid JSON: recursion limit"),
        (rename_run, "describes another run"),
        (keep_manifest_only, "has neither records nor logs"),
        (change_index(lambda index: index.update(format=2)), "has other files than manifest.json"),
        (change_file("RUN/records-v1/published.json", b"{}"), "is from a published pack, so it"),
        (change_file("RUN/records-v1/parse.json", None), "parse.json is missing"),
        (change_file("RUN/records-v1/goodput.parquet", b"PAR1"), "goodput.parquet is damaged"),
        (change_older_file("RUN/records-v1/streams.parquet", None), "streams.parquet is missing"),
        (change_older_file("RUN/records-v1/goodput.parquet", b"PAR1"), "goodput.parquet cannot be"),
    ],
)
def test_a_damaged_pack_leaves_the_store_as_it_was(
    places: Places, change: Change, message: str
) -> None:
    file, (run_id,) = packed(places.here, places.folder, "rr seed 1")
    rewrite(file, change, run_id)
    make_run(places.there, "another")
    before = content(places.there)
    with pytest.raises(UserError, match=message) as refused:
        unpack(places.there, file)
    assert len(refused.value.message) < 400 + len(str(file))
    assert ".unpacking-" not in refused.value.message
    assert content(places.there) == before
    assert not list(places.folder.rglob("outside"))


class Zeros:
    """An endless stream of zero bytes."""

    def read(self, size: int) -> bytes:
        return bytes(size)


@pytest.mark.parametrize(
    ("large", "message"),
    [
        (member(f"{OTHER_ID}/a", 200 * 2**20), "holds more than 64 MiB, the limit for its size"),
        (member(INDEX, 200 * 2**20), "it holds more than 64 MiB"),
        (member(INDEX, 40 * 2**20), "index.json is too large: it holds more than 16 MiB"),
        (member("x", 200 * 2**20, tarfile.XHDTYPE), "holds more than 0.0625 MiB"),
        (member("x", 200 * 2**20, tarfile.GNUTYPE_LONGNAME), "is not a regular file"),
        (member("x", 0, tarfile.SYMTYPE), "is not a regular file"),
        (member(f"{OTHER_ID}/a", 10**9, size=str(2**40)), "holds more than 64 MiB"),
        (member(f"{OTHER_ID}/a", 10**9, size="-5"), "is not a file of a run"),
    ],
)
def test_a_pack_that_holds_too_much_is_not_read(
    places: Places, large: tarfile.TarInfo, message: str
) -> None:
    index = json.dumps({"files": {f"{OTHER_ID}/a": "0" * 64}}).encode()
    with tarfile.open(places.folder / "large.tar.xz", "w:xz", preset=1) as archive:
        if large.name != INDEX:
            archive.addfile(member(INDEX, len(index)), io.BytesIO(index))
        has_content = not large.pax_headers and large.size
        archive.addfile(large, Zeros() if has_content else None)  # type: ignore[arg-type]
    require_little_memory(places.there, places.folder / "large.tar.xz", message)


def require_little_memory(store: Store, file: Path, message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=message):
            unpack(store, file)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert not content(store)


def test_a_pack_that_needs_a_large_dictionary_is_refused(places: Places) -> None:
    file, _ = packed(places.here, places.folder, "a")
    data = bytearray(file.read_bytes())
    # The header of the xz block follows the stream's header of 12 bytes. The fifth byte of the
    # block's header encodes the size of the dictionary. Its largest value, 40, means 4 GiB. The
    # header ends with a checksum.
    end = 12 + 4 * data[12]
    assert (data[14], data[15]) == (0x21, 1)
    data[16] = 40
    data[end : end + 4] = zlib.crc32(data[12:end]).to_bytes(4, "little")
    file.write_bytes(data)
    require_little_memory(places.there, file, "compressed data is damaged .*[Mm]emory usage limit")


def test_a_member_counts_once(places: Places) -> None:
    file, _ = packed(places.here, places.folder, "a")
    other = places.folder / "twice.tar.xz"
    with tarfile.open(file) as archive, tarfile.open(other, "w:xz") as twice:
        members = archive.getmembers()
        for one in (*members, members[-1]):
            twice.addfile(one, archive.extractfile(one))
    with pytest.raises(UserError, match="is unexpected"):
        unpack(places.there, other)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_cut_pack(places: Places, share: float) -> None:
    file, _ = packed(places.here, places.folder, "a", "b")
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UserError, match="is not a pack of runs, or it is damaged"):
        unpack(places.there, file)
    assert not content(places.there)


def test_the_scratch_folder_of_a_killed_command_is_removed(places: Places) -> None:
    file, (run_id,) = packed(places.here, places.folder, "rr seed 1")
    left = places.there.directory / f".unpacking-{os.getpid()}" / run_id / MANIFEST
    left.parent.mkdir(parents=True)
    left.write_text("half of one")
    assert unpack(places.there, file) == [(run_id, "new")]
    assert not list(places.there.directory.glob(".unpacking-*"))


# ----- several packs


def part(store: Store, folder: Path, seed: int) -> tuple[Path, str]:
    """Return a pack of a study's run on one network, and the ID of this run."""
    run_id = make_run(store, f"seed {seed}")
    file = folder / f"seed-{seed}.tar.xz"
    pack(store, [run_id], file, studies=[make_study("small", {seed: run_id})], logs=False)
    return file, run_id


def test_damage_that_is_found_later_is_that_of_its_pack(places: Places) -> None:
    (first, _), (second, run_id) = (part(places.here, places.folder, n) for n in (1, 2))
    with (
        pytest.raises(UserError, match=rf"seed-2\.tar\.xz is .*: {run_id}/x is damaged"),
        open_packs([first, second], places.folder / "open") as folder,
    ):
        raise AnalysisError(f"{folder / run_id}/x is damaged")


def merged_study(files: list[Path], folder: Path) -> Study:
    with open_packs(files, folder / "scratch") as merged:
        made = load_study(merged / STUDIES / "small.json")
    assert not list(folder.glob("scratch/*"))
    return made


def test_parts_of_a_study_are_merged(places: Places) -> None:
    (second, run_2), (first, run_1), (third, run_3) = (
        part(places.here, places.folder, n) for n in (2, 1, 3)
    )
    study = merged_study([second, first, third, second], places.folder)
    assert study.asked == {"seeds": [1, 2, 3], "scale": 1.0}
    assert [run.run_id for run in study.runs] == [run_2, run_1, run_3]
    assert [run["run_id"] for run in study.provenance["runs"]] == [run_2, run_1, run_3]
    with open_packs([second, first], places.folder / "scratch") as folder:
        assert {path.parent.name for path in folder.glob(f"*/{MANIFEST}")} == {run_1, run_2}


def merge(folder: Path, *studies: Study) -> Study:
    for number, one in enumerate(studies):
        write_study(folder / "next.json", one)
        add_study(folder / "small.json", folder / "next.json", Path(f"pack {number}"))
    return load_study(folder / "small.json")


def one_seed(seed: int, **changes: Any) -> Study:
    return make_study("small", {seed: f"{seed:016}"}, **changes)


def level(**changes: Any) -> Level:
    return one_seed(1).levels[0].model_copy(update=changes)


def tor_build(openssl: str, patch: str = "one") -> dict[str, Any]:
    toolchain = {"openssl": openssl}
    source = {"patches": [patch], "toolchain": toolchain}
    return {"program": "tor", "sha256": f"of {openssl} {patch}", "source": source}


def built(seed: int, *builds: dict[str, Any]) -> Study:
    return one_seed(seed, provenance={"machine": {}, "tor": list(builds)})


def test_parts_with_other_builds_of_the_same_source_are_merged(tmp_path: Path) -> None:
    old, new = tor_build("3.0.19"), tor_build("3.0.22")
    merged = merge(tmp_path, built(1, old), built(2, new), built(3, old))
    assert merged.asked["seeds"] == [1, 2, 3]
    assert merged.provenance["tor"] == [old, new]
    with pytest.raises(UserError, match="Tor's source"):
        merge(tmp_path, built(4, tor_build("3.0.22", "another")))


CAPACITY = "capacities_bytes_per_s"


@pytest.mark.parametrize(
    "changes",
    [
        {"asked": {"seeds": [2], "scale": 0.1}},
        {"provenance": {"engine": {"name": "shadow"}, "machine": {}}},
        {"title": "another"},
        {"levels": (level(stop_s=40.0),)},
        {"levels": (level(), level(name="second"))},
        {"levels": (level(**{CAPACITY: {"middle": 1.0}}),)},
    ],
)
def test_a_part_of_another_study_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    one = one_seed(1, levels=(level(**{CAPACITY: {"middle": 2.0}}),))
    with pytest.raises(UserError, match=r"small in pack 1 differs from the experiment"):
        merge(tmp_path, one, one_seed(2, **changes))


def test_a_study_without_runs_is_replaced(places: Places) -> None:
    """A pack with the runs of one experiment of a paper also has the studies of the others."""
    (made, run_id), (one, _) = (part(places.here, places.folder, n) for n in (1, 3))
    planned = make_study("small", {1: "0123456789abcdef"}, title="planned only")
    other = make_run(places.here, "of another experiment")
    older = places.folder / "older.tar.xz"
    pack(places.here, [other], older, studies=[planned], logs=False)
    for files in ([older, made, one], [made, older, one]):
        study = merged_study(files, places.folder)
        assert study.asked["seeds"] == [1, 3]
        assert study.runs[0].run_id == run_id
        assert study.title != planned.title
    assert merged_study([older, older], places.folder) == planned


def test_the_command_packs_the_networks_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pack_command, "working_root", lambda: tmp_path)
    store = Store(tmp_path / "runs")
    out = tmp_path / "results" / "small"
    planned = tuple(
        PlannedRun(make_run(store, f"seed {seed}"), "quick", "rr", seed) for seed in (1, 2, 3)
    )
    Plan(Request("small"), planned, store.directory, out, 1, Resources(1, 1, 1)).write()
    whole = make_study("small", {run.seed: run.run_id for run in planned})
    write_study(out / "study.json", whole)
    for seeds, kept in (("2", [1, 2]), ("3,", [3]), ("2,3,7", [2, 3])):
        file = tmp_path / f"{len(kept)}.tar.xz"
        assert main(["pack", "small", "--seeds", seeds, "--out", str(file)]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == str(file)
        with open_pack(file, tmp_path / "scratch") as folder:
            study = load_study(folder / STUDIES / "small.json")
            assert study.asked["seeds"] == kept
            assert study.runs == tuple(run for run in whole.runs if run.seed in kept)
            assert [run["seed"] for run in study.provenance["runs"]] == kept
            runs = {path.parent.name for path in folder.glob(f"*/{MANIFEST}")}
            assert runs == {run.run_id for run in study.runs}
    both = merged_study([tmp_path / "2.tar.xz", tmp_path / "1.tar.xz"], tmp_path)
    assert both.asked["seeds"] == [2, 3]
    Plan(Request("small"), planned[1:], store.directory, out, 1, Resources(1, 1, 1)).write()
    for networks in ("9,", "1"):
        assert main(["pack", "small", "--seeds", networks]) == 2
        assert f"found no run of small on these networks: {networks[0]}" in capsys.readouterr().err
