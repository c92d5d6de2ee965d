"""`onionlab compare`: names of sets, and exit statuses."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from analysis_synthetic import VARIANTS, study_content, write_run
from test_published import LEFT_OUT

from analysis.formats.json_files import read_json, write_json
from analysis.formats.manifest import identity_hash
from analysis.formats.study import Study
from analysis.records.extract import extract
from onionlab.cli import main
from onionlab.commands import compare
from onionlab.runs.packing import pack
from onionlab.runs.store import Store

pytestmark = pytest.mark.usefixtures("svg_only")

SEEDS = [1, 2, 3, 4, 5]
TORRC = b"KISTSchedRunInterval 10 msec\n"


def manifest(variant: str, seed: int, torrc: bytes = TORRC) -> dict[str, Any]:
    return {
        "format": 1,
        "identity": {
            "engine": {"name": "shadow", "version": "3.3.0"},
            "programs": {"tor-circuit-policy": "c0ffee"},
            "files": {
                "conf/network.gml": f"n{seed}",
                f"conf/tor.variant.{variant}.torrc": variant,
                "conf/tor.common.torrc": hashlib.sha256(torrc).hexdigest(),
            },
        },
        "tor": {"tor-circuit-policy": {"version": "0.4.9", "sha256": "s", "source": "debian"}},
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout with the results of one experiment in which rr is twice as slow as ewma."""
    root = tmp_path_factory.mktemp("checkout")
    content = study_content(SEEDS, variants=VARIANTS[:2]) | {"figures": []}
    for run in content["runs"]:
        directory = root / "runs" / run["run_id"]
        write_run(directory, run["seed"], {"ewma": 1.0, "rr": 2.0}[run["variant"]], web=4, bulk=1)
        extract(directory, directory / "records-v1")
        shutil.rmtree(directory / "shadow.data")
        (directory / "conf").mkdir(exist_ok=True)
        (directory / "conf" / "tor.common.torrc").write_bytes(TORRC)
        write_json(directory / "manifest.json", manifest(run["variant"], run["seed"]))
    write_json(root / "results" / "swrr-test" / "study.json", content)
    write_json(root / "results" / "swrr-test" / "plan.json", {"store": str(root / "runs")})
    return root


@pytest.fixture
def other(checkout: Path, tmp_path: Path) -> Path:
    """Return a copy of the checkout, whose plan.json names the copy's own store of runs."""
    copy = tmp_path / "other"
    shutil.copytree(checkout, copy)
    write_json(copy / "results" / "swrr-test" / "plan.json", {"store": str(copy / "runs")})
    return copy


@pytest.fixture
def onionlab(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.setattr(compare, "working_root", lambda: checkout)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(["compare", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_a_slower_variant_is_a_regression(onionlab: Any, checkout: Path, tmp_path: Path) -> None:
    status, out, _ = onionlab("swrr-test:ewma", "swrr-test:rr", "--out", str(tmp_path))
    assert status == 1
    assert "about variant" in out
    assert "worse" in out
    *_, report = out.splitlines()
    table = find_table(out)
    # The answer is printed after the path of the table and before the path of the report.
    assert "Regression." in out.splitlines()
    assert Path(report).read_text().startswith("<!DOCTYPE html>")
    assert Path(table).read_text().startswith("cell,class,metric")
    assert "ttfb_p50_s" in worse(table)
    _, out, _ = onionlab("swrr-test:rr", "swrr-test:ewma", "--out", str(tmp_path))
    assert worse(find_table(out)) == set()


def find_table(out: str) -> str:
    """Return the path of the table that the output names."""
    (path,) = (line for line in out.splitlines() if line.endswith(".csv"))
    return path


def worse(table: str) -> set[str]:
    """Return the metrics that the comparison's table calls worse."""
    rows = pd.read_csv(table)
    return set(rows["metric"][(rows["grade"] == "shown") & (rows["direction"] == "worse")])


def test_another_checkout_with_the_same_records(onionlab: Any, other: Path, tmp_path: Path) -> None:
    """The checkout was moved, so its plan.json names a store (folder of runs) that is missing.

    The store next to the results is used instead.
    """
    plan = other / "results" / "swrr-test" / "plan.json"
    write_json(plan, {"store": str(tmp_path / "gone")})
    for b in (other, other / "runs", other / "results" / "swrr-test"):
        status, out, _ = onionlab("swrr-test:ewma", str(b), "--out", str(tmp_path / "o"))
        assert (status, "byte-identical" in out) == (0, True)
    shutil.rmtree(other / "runs")
    plan.unlink()
    status, _, err = onionlab("swrr-test:ewma", str(other / "results" / "swrr-test"))
    assert (status, "has no store with its runs" in err) == (2, True)


def test_ignored_logs_are_in_the_report(onionlab: Any, other: Path, tmp_path: Path) -> None:
    run = next(path for path in (other / "runs").iterdir() if "-rr-" in path.name)
    path = run / "records-v1" / "parse.json"
    report = read_json(path)
    silent = {"clients_without_heartbeats": ["web1client"], "classes": {"web1client": "web"}}
    write_json(path, report | silent)
    _, out, _ = onionlab(
        f"{other}/results/swrr-test:ewma", f"{other}/results/swrr-test:rr", "--out", str(tmp_path)
    )
    page = Path(out.splitlines()[-1]).read_text()
    note = "no heartbeats in the logs of 1 of 5 clients (web1client)"
    assert f"Not counted of {run.name}: {note}." in page


@pytest.fixture(scope="module")
def pack_file(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pack (archive of runs) with two copies of the checkout's experiment.

    They are named `a` and `b`. Both lack the run of rr on the last network. A
    published pack of the same runs, p.tar.xz, is in the same folder.
    """
    root = tmp_path_factory.mktemp("packed")
    store = Store(root / "runs")
    content = read_json(checkout / "results" / "swrr-test" / "study.json")
    for run in content["runs"]:
        made = read_json(checkout / "runs" / run["run_id"] / "manifest.json")
        run_id = identity_hash(made["identity"])
        if (run["variant"], run["seed"]) != ("rr", SEEDS[-1]):
            shutil.copytree(checkout / "runs" / run["run_id"], store.run(run_id))
        run.update(run_id=run_id, directory=run_id, records=f"{run_id}/records-v1")
    studies = [Study.model_validate({**content, "name": name}) for name in ("a", "b")]
    file = root / "runs.tar.xz"
    run_ids = [run["run_id"] for run in content["runs"]]
    pack(store, run_ids, file, studies=studies, logs=False)
    pack(store, run_ids, root / "p.tar.xz", studies=studies, logs=False, published=True)
    shutil.rmtree(store.directory)
    return file


def test_a_pack_is_compared_as_its_runs_are(
    onionlab: Any, checkout: Path, pack_file: Path, tmp_path: Path
) -> None:
    """Both sides, or one of them, can be runs of a pack. The checkout's results do not change."""
    out = ("--out", str(tmp_path))
    status, packed, _ = onionlab(f"{pack_file}:a:ewma", f"{pack_file}:b:rr", *out)
    assert (status, "runs: 4" in packed, "without a pair: 5" in packed) == (1, True, True)
    assert f"Regression. A is {pack_file}:a:ewma, B is {pack_file}:b:rr." in " ".join(
        packed.split()
    )
    assert " under B as under A (" in " ".join(packed.split())
    status, both, err = onionlab(f"{pack_file}:a", "swrr-test:ewma", *out)
    assert (status, "byte-identical" in both) == (0, True), err
    assert sorted(path.name for path in (checkout / "results").iterdir()) == ["swrr-test"]


def test_a_published_pack_is_compared_by_its_data(
    onionlab: Any, pack_file: Path, tmp_path: Path
) -> None:
    """The hashes in a published pack show that records are the same.

    Values that a published pack does not contain are missing in the comparison.
    """
    out = ("--out", str(tmp_path))
    published_file = pack_file.with_name("p.tar.xz")
    status, same, err = onionlab("swrr-test:ewma", f"{published_file}:a", *out)
    assert (status, "byte-identical" in same) == (0, True), err
    _, lines, _ = onionlab("swrr-test:ewma", "swrr-test:rr", *out)
    whole = pd.read_csv(find_table(lines))
    status, lines, err = onionlab(f"{published_file}:a:ewma", "swrr-test:rr", *out)
    assert status == 1, err
    small = pd.read_csv(find_table(lines))
    lacking = small["metric"].isin(LEFT_OUT)
    assert small[~lacking].equals(whole[~lacking])
    assert small[lacking]["grade"].isna().all()
    assert small[lacking]["note"].str.contains("A: not in a published pack in 5 of 5 runs").all()


def test_the_option_of_tor_that_differs_is_named(onionlab: Any, other: Path) -> None:
    """Options are compared only if the runs' torrc files match the hashes in their manifests."""
    slow = b"KISTSchedRunInterval 100 msec\n"
    for run in (other / "runs").glob("5mid-*"):
        variant, seed = run.name.split("-")[1:]
        write_json(run / "manifest.json", manifest(variant, int(seed), torrc=slow))
        (run / "conf" / "tor.common.torrc").write_bytes(slow)
    asked = ("swrr-test:rr", str(other), "--allow-diff", "tor")
    status, _, err = onionlab(*asked)
    option = "conf/tor.common.torrc (KISTSchedRunInterval: 10 msec / 100 msec)"
    assert (status, option in err) == (2, True), err
    for run in (other / "runs").glob("5mid-*"):
        (run / "conf" / "tor.common.torrc").write_bytes(b"KISTSchedRunInterval 1 msec\n")
    _, _, err = onionlab(*asked)
    assert "configuration: conf/tor.common.torrc\n" in err


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("swrr-test:ewma", "swrr-test:ewma", "are the same runs"),
        ("swrr-test:ewma", "swrr-test:pie", "no runs of 'pie'"),
        ("swrr-test", "nowhere", "found no runs of nowhere"),
        ("swrr-test", "", "has no name"),
        ("swrr-test", "nowhere.tar.xz", "there is no "),
        ("swrr-test", "cut.tar.xz:a", "is not a pack of runs"),
        ("./checkout", "./checkout", "neither"),
        ("swrr-test", "runs.tar.xz", "names no experiment of the pack\nit holds runs of: a, b"),
        ("swrr-test", "runs.tar.xz:c:rr", "names no experiment"),
    ],
)
def test_invalid_names_of_sets(
    onionlab: Any, checkout: Path, pack_file: Path, a: str, b: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "cut.tar.xz").write_bytes(b"\xfd7zXZ")
    (tmp_path / "runs.tar.xz").symlink_to(pack_file)
    (tmp_path / "checkout").symlink_to(checkout)
    with contextlib.chdir(tmp_path):
        status, _, err = onionlab(a, b)
    assert (status, err.startswith("error: "), message in err) == (2, True, True), err


LACKING = (
    "1 of the 5 runs of swrr-test is missing: rr, seed 3\n"
    "make the missing runs: make experiment NAME=swrr-test SCALE=0.1 NETWORKS=5"
)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("manifest.json", None, LACKING),
        ("manifest.json", "{", LACKING),
        ("manifest.json", '{"format": 9}', "not a valid manifest"),
        ("records-v1/goodput.parquet", None, "swrr-test, rr, seed 3: "),
    ],
)
def test_damaged_runs(
    onionlab: Any, other: Path, name: str, content: str | None, message: str
) -> None:
    path = other / "runs" / "5mid-rr-3" / name
    path.write_text(content) if content else path.unlink()
    status, _, err = onionlab("swrr-test:rr", str(other))
    assert (status, message in err) == (2, True), err
