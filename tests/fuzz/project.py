"""A small project with results, a store, packs and imports, in which fuzz tests call commands.

Each example of a fuzz test overwrites some files of the project, calls a command as a user does,
and restores the project.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from analysis_synthetic import LEVEL, VARIANTS, LogWriter, forget_hashes, study_content, write_run
from celltrace_synthetic import write_traced_run
from peers.test_records import DOWNLOADER, SEED, whole
from peers.test_records import write_run as write_peers
from runset_synthetic import make_set
from suite_figures import only_svg
from test_imports import collection
from test_nightly import Machine
from tornet_synthetic import write_tornet_run

from analysis.formats.files import PUBLISHED, RECORDS, RUN_SET
from analysis.formats.json_files import write_json
from analysis.formats.manifest import identity_hash
from analysis.formats.study import load_study
from analysis.imports.importing import import_runs
from analysis.measures.catalogue import run_statistics
from analysis.measures.publishing import publish
from analysis.measures.run_data import load_run
from analysis.records.extract import extract
from onionlab.cli import command_modules, main
from onionlab.questions import nightly
from onionlab.runs.packing import pack
from onionlab.runs.store import Store

REPOSITORY = Path(__file__).resolve().parents[2]
STATUSES = {0, 1, 2, 3}
NAME = "swrr-test"
EXAMPLES = int(os.environ.get("ONIONLAB_FUZZ_EXAMPLES", "0"))
"""Number of inputs of each fuzz test. 0 stands for a small number of inputs that never change."""

MAX_S = 20.0
MAX_BYTES = 2**30
"""Limits of CPU time (in seconds) and of memory (in bytes) for one input. Memory that the process
used before the input does not count."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Fail if the block exceeds MAX_S or MAX_BYTES."""
    before_bytes = _resident_bytes("VmRSS")
    # This resets the process's peak memory, VmHWM, to its current memory.
    Path("/proc/self/clear_refs").write_text("5")
    before_s = time.process_time()
    yield
    assert time.process_time() - before_s < MAX_S
    assert _resident_bytes("VmHWM") - before_bytes < MAX_BYTES


def _resident_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(one for one in lines if one.startswith(name)).split()[1]) * 1024


def compute(records: Path) -> None:
    """Compute the metrics of ``records``, publish these, and compute the result's metrics."""
    run_statistics(load_run(records, LEVEL))
    publish(records, [LEVEL], records.parent / "published")
    run_statistics(load_run(records.parent / "published", LEVEL))


def _samples(root: Path) -> Iterator[list[Path]]:
    """Write three runs, and yield the files of each one's records in a fixed order.

    They are a run with cell traces, a transfer between peers, and a run of a tornettools network.
    """
    for name, write in (
        ("traces", write_traced_run),
        ("peers", lambda run: write_peers(run, *peers_logs())),
        ("tornettools", lambda run: write_tornet_run(run, 1)),
    ):
        run = root / name
        run.mkdir(parents=True)
        write(run)
        extract(run, run / RECORDS)
        forget_hashes(run / RECORDS / "parse.json")
        yield sorted((run / RECORDS).iterdir())


class Project:
    """A project in ``root / "project"``. Commands must not change anything outside of it."""

    def __init__(self, root: Path) -> None:
        self.outside = root
        self.root = root / "project"
        self.pristine = root / "pristine"
        self.results = self.root / "results" / NAME
        self.inputs = self.root / "inputs"
        self.inputs.mkdir(parents=True)
        for name in ("configs", "experiments", "tor-patches", "libtorrent-patches"):
            shutil.copytree(REPOSITORY / name, self.root / name)
        self._write_results()
        self._write_pack()
        self._write_import()
        self.samples = list(_samples(root / "samples"))
        (root / "beside").write_text("of somebody else")
        shutil.copytree(self.root, self.pristine)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Let all commands work in this project."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(only_svg())
            # The commands must not replace the tests' handler of SIGTERM.
            stack.enter_context(mock.patch("onionlab.interruption.signal.signal"))
            for name in command_modules().values():
                module = importlib.import_module(name)
                if hasattr(module, "working_root"):
                    patch = mock.patch.object(module, "working_root", return_value=self.root)
                    stack.enter_context(patch)
            yield

    def _write_results(self) -> None:
        content = study_content([1, 2, 3], variants=VARIANTS[:2]) | {"figures": []}
        for run in content["runs"]:
            identity = {
                "engine": {"name": "shadow", "version": "3.3.0"},
                "programs": {"tor-circuit-policy": "c0ffee"},
                "files": {"conf/tor.variant.torrc": run["variant"], "seed": str(run["seed"])},
            }
            run_id = identity_hash(identity)
            directory = self.root / "runs" / run_id
            write_run(directory, run["seed"], {"ewma": 1.0, "rr": 1.2}[run["variant"]], 2, 1)
            extract(directory, directory / "records-v1")
            forget_hashes(directory / "records-v1" / "parse.json")
            if run is not content["runs"][0]:
                shutil.rmtree(directory / "shadow.data")
            tor = {"tor-circuit-policy": {"version": "0.4.9.11", "sha256": "s", "source": "debian"}}
            manifest = {"format": 1, "run_id": run_id, "identity": identity, "tor": tor}
            write_json(directory / "manifest.json", manifest)
            run.update(run_id=run_id, directory=run_id, records=f"{run_id}/records-v1")
        self.run_ids = [run["run_id"] for run in content["runs"]]
        write_json(self.results / "study.json", content)
        plan = {
            "format": 1,
            "request": {"experiment": NAME},
            "runs": [
                {key: run[key] for key in ("run_id", "level", "variant", "seed")}
                for run in content["runs"]
            ],
            "store": str(self.root / "runs"),
            "cpus_per_run": 1,
            "resources": {"memory_bytes": 1, "disk_bytes": 1, "processes": 1},
        }
        write_json(self.results / "plan.json", plan)

    def _write_pack(self) -> None:
        store = Store(self.root / "runs")
        self.pack_file = self.inputs / "runs.tar.xz"
        studies = [load_study(self.results / "study.json")]
        some = self.run_ids[:2]
        pack(store, some, self.pack_file, studies=studies, logs=True)
        self.members = members_of(self.pack_file)
        file = self.published_file = self.inputs / "published.tar.xz"
        pack(store, some, file, studies=studies, logs=False, published=True)
        self.published_members = {
            name: content.replace(b'"tables"', b'"old"') if name.endswith(PUBLISHED) else content
            for name, content in members_of(file).items()
        }

    def _write_import(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            simulations = collection(Path(folder), 1.0, 4, 1)
            made = import_runs([simulations], "others")
        path = self.root / "results" / "others" / RUN_SET
        path.parent.mkdir()
        path.write_text(made.text())

    def call(self, *words: str) -> int:
        """Run a command on damaged input and return its exit status.

        The command must not show a traceback, an error message must be short, and the files that
        ``_beside`` lists must stay unchanged.
        """
        out, errors, before = io.StringIO(), io.StringIO(), self._beside()
        with limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                status = main(words)
            except SystemExit as ended:
                status = int(ended.code or 0)
        printed = errors.getvalue()
        assert status in STATUSES, printed
        assert "Traceback" not in printed
        if status == 2:
            assert "error: " in printed
            assert len(printed) < 20_000
        assert self._beside() == before
        return status

    def check(self, read: Callable[[], object]) -> int:
        """Call ``read`` in place of a command, with the checks of ``call``. Return the exit status.

        This tests a reader without the rest of the command, which may be a simulation.
        """
        verb = SimpleNamespace(
            HELP="reads", setup_arguments=lambda _: None, run=lambda _: (read(), 0)[1]
        )
        with (
            mock.patch("onionlab.cli.command_modules", return_value={"read": "read"}),
            mock.patch("onionlab.cli.load_command", return_value=verb),
        ):
            return self.call("read")

    @contextlib.contextmanager
    def damaged(self, changes: Mapping[Path, bytes | None]) -> Iterator[None]:
        """Replace files for the block, then restore their folders, results/ and runs/.

        If the new content is None, the file is removed.
        """
        touched = {path.relative_to(self.root).parts[0] for path in changes} | {"results", "runs"}
        try:
            for path, content in changes.items():
                path.unlink(missing_ok=True)
                if content is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
            yield
        finally:
            for name in touched:
                self._restore(name)

    def _restore(self, name: str) -> None:
        """Restore a folder. Unchanged files, which are most of them, are not written."""
        here, kept = self.root / name, self.pristine / name
        before = {path.relative_to(kept): path for path in kept.rglob("*")}
        for path in sorted(here.rglob("*"), reverse=True):
            if path.relative_to(here) not in before:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for relative, original in sorted(before.items()):
            path = here / relative
            if original.is_dir():
                path.mkdir(parents=True, exist_ok=True)
            elif _seen(path) != _seen(original):
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(original, path)

    def _beside(self) -> dict[Path, tuple[int, int] | None]:
        """Return size and modification time of the files and folders that no command may change.

        These are the other entries of the project's parent folder, the entries of the project's top
        folder except results/ and runs/, and everything in inputs/.
        """
        written = (self.root / "results", self.root / "runs")
        paths = [*self.outside.iterdir(), *self.root.iterdir(), *self.inputs.rglob("*")]
        return {path: _seen(path) for path in paths if path not in (*written, self.root)}


class Nights:
    """Three nightly runs of one experiment, and a fourth one that reads the damaged files."""

    def __init__(self, root: Path) -> None:
        self._machine = Machine(root)
        self._state = root / "nightly"
        self._pristine = root / "pristine"
        for number in range(3):
            self._night(number)
        (baseline,) = (self._state / "baselines").iterdir()
        self.files = {"baseline": baseline, "history": self._state / "history.parquet"}
        shutil.copytree(self._state, self._pristine)

    def _night(self, number: int) -> None:
        with mock.patch.object(nightly, "write_forest", return_value=None):
            self._machine.night(make_set(seeds=range(1, 5), noise_seed=number), accept=number == 0)

    def next_night(self) -> None:
        """Start the fourth nightly run."""
        self._night(9)

    @property
    def measured(self) -> int:
        """Return 1 if the fourth nightly run simulated, or 0 if it was refused before that."""
        return self._machine.measured - 3

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Restore all files, and the counts of nightly runs, at the end of the block."""
        try:
            yield
        finally:
            shutil.rmtree(self._state)
            shutil.copytree(self._pristine, self._state)
            self._machine.measured = self._machine.nights = 3


def _seen(path: Path) -> tuple[int, int] | None:
    """Return size and modification time (ns). Return None if the path is missing."""
    try:
        return path.lstat().st_size, path.lstat().st_mtime_ns
    except FileNotFoundError:
        return None


def members_of(file: Path) -> dict[str, bytes]:
    """Return name -> content of each member of a pack."""
    with tarfile.open(file) as archive:
        return {
            member.name: (archive.extractfile(member) or io.BytesIO()).read()
            for member in archive.getmembers()
        }


def repacked(members: Mapping[str, bytes], *, hashes: bool = True, version: int = 1) -> bytes:
    """Return a pack of these members.

    Args:
        hashes: Whether to replace the index, if there is one, by an index with the right hashes.
        version: Format of the new index: 1, or 2 for a published pack.
    """
    if hashes and "index.json" in members:
        files = {
            name: hashlib.sha256(content).hexdigest()
            for name, content in members.items()
            if name != "index.json"
        }
        index = json.dumps({"format": version, "files": files}).encode()
        members = {**members, "index.json": index}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz", preset=0) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def peers_logs() -> tuple[bytes, bytes]:
    """Return the logs of the two peers of a transfer."""
    return whole(SEED), whole(DOWNLOADER)


def usual_log() -> bytes:
    """Return a client's log with each kind of line."""
    log = LogWriter("web1client")
    log.start(240.0)
    for number in range(12):
        begun = 241.0 + 5 * number
        stream = log.create()
        log.status(begun + 1, stream, 327_680, 1000)
        log.heartbeat(begun + 2, 1000 * number)
        if number % 4 != 3:
            error = "NONE" if number % 3 else "TIMEOUT"
            times: dict[str, Any] = {"command_s": 0.2, "first_byte_s": 0.9, "last_byte_s": 2.9}
            size: dict[str, Any] = {"requested": 327_680, "payload": 327_680}
            log.end(begun + 3, stream, begun, error=error, **size, **times)
    return log.text()
