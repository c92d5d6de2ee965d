"""Copies of runs in the layout that tornettools' parse, plot and archive commands expect."""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
from pathlib import Path

import pytest
from analysis_synthetic import digests
from tornet_synthetic import needs_tornettools, write_tornet_run

from analysis.formats import files
from analysis.formats.plan_file import PlannedRun
from analysis.measures.plot_data import plot_data
from analysis.records.extract import extract
from onionlab.errors import UserError
from onionlab.runs import tornettools_view
from onionlab.runs.store import Store
from onionlab.runs.tornettools_view import lay_out

RUNS = [
    PlannedRun(run_id=f"{variant}{seed}", level="tornet", variant=variant, seed=seed)
    for variant in ("stock", "swrr")
    for seed in (1, 2)
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "runs")
    for planned in RUNS:
        run = made.run(planned.run_id)
        write_tornet_run(run, planned.seed, 1.2 if planned.variant == "swrr" else 1.0)
        (run / "shadow.log").write_text("what Shadow said\n")
        (run / files.MANIFEST).write_text("{}")
    return made


def test_a_run_is_laid_out_whole_and_stays_as_it_was(store: Store, tmp_path: Path) -> None:
    before = digests(store.directory)
    made = lay_out(tmp_path, store, RUNS, tmp_path / "out")
    folders = [path.relative_to(tmp_path / "out").as_posix() for path in made]
    assert folders == [f"{name}/tornet-{n}" for name in ("stock", "swrr") for n in (1, 2)]
    log = f"{files.HOSTS}/perfclient1exit/tgen.1004.stdout"
    assert digests(made[0])[log] == before[f"stock1/{log}"]
    own = {files.CLIENTS, files.HOST_ROLES, files.RUN, files.MANIFEST}
    assert not own & {path.name for path in made[0].iterdir()}
    # Change a file at the top level and remove the logs, as `tornettools archive` does. The store
    # must not change.
    (made[0] / "shadow.log").write_text("compressed")
    shutil.rmtree(made[0] / files.LOGS)
    assert digests(store.directory) == before


def test_compressed_logs_are_unpacked_under_the_names_that_parse_looks_for(
    store: Store, tmp_path: Path
) -> None:
    folder = store.run("stock1") / files.HOSTS / "perfclient1exit"
    text = (folder / "tgen.1004.stdout").read_bytes()
    (folder / "tgen.stdout.xz").write_bytes(lzma.compress(text))
    (folder / "tgen.1004.stdout").unlink()
    made = lay_out(tmp_path, store, RUNS[:1], tmp_path / "out")
    found = made[0] / files.HOSTS / "perfclient1exit/tgen.1000.stdout"
    assert found.read_bytes() == text
    (folder / "tgen.stdout").write_bytes(text)
    with pytest.raises(UserError, match="twice"):
        lay_out(tmp_path, store, RUNS[:1], tmp_path / "again")


def test_plot_data_come_of_the_records(store: Store, tmp_path: Path) -> None:
    run = store.run("stock1")
    extract(run, run / files.RECORDS)
    (made,) = lay_out(tmp_path, store, RUNS[:1], tmp_path / "out", with_plot_data=True)
    paths = (made / "tornet.plot.data").iterdir()
    found = {path.name: json.loads(path.read_text()) for path in paths}
    assert found == plot_data(run / files.RECORDS)
    assert found["relay_goodput.json"]


def test_the_log_of_generate_comes_from_the_network(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "tornettools.generate.log"
    log.write_text("Chose 20 of 6500 relays\n")
    asked = []

    def of_the_first_seed(root: Path, seed: int, hosts: Path) -> Path | None:
        asked.append((root, hosts))
        return log if seed == 1 else None

    monkeypatch.setattr(tornettools_view, "find_generate_log", of_the_first_seed)
    one, two = lay_out(tmp_path, store, RUNS[:2], tmp_path / "out")
    assert (one / log.name).read_bytes() == log.read_bytes()
    assert not (two / log.name).exists()
    assert asked[0] == (tmp_path, store.run("stock1") / files.HOSTS)


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        (files.MANIFEST, "is not finished"),
        (files.HOST_ROLES, "is not of a network of tornettools"),
        (files.LOGS, "has no logs"),
    ],
)
def test_runs_that_cannot_be_exported_are_an_error_and_leave_no_files(
    store: Store, tmp_path: Path, missing: str, what: str
) -> None:
    path = store.run("stock1") / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UserError, match=what):
        lay_out(tmp_path, store, RUNS[:1], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@needs_tornettools
def test_tornettools_parses_plots_and_archives(store: Store, tmp_path: Path) -> None:
    made = lay_out(tmp_path, store, RUNS, tmp_path / "out")

    def tornettools(*words: str) -> None:
        subprocess.run(["tornettools", *words], check=True, capture_output=True, cwd=tmp_path)

    for path in made:
        tornettools("parse", str(path))
        assert (path / "tornet.plot.data/time_to_last_byte_recv.exit.json").is_file()
    collections = sorted({str(path.parent) for path in made})
    tornettools("plot", *collections, "--prefix", str(tmp_path / "plots"), "--pngs")
    assert (tmp_path / "plots/transfer_time_51200.exit.png").is_file()
    tornettools("archive", str(made[0]))
    assert (made[0] / "shadow.data.tar.xz").is_file()
    assert (store.run("stock1") / files.HOSTS / "perfclient1exit/tgen.1004.stdout").is_file()
