"""An experiment on an imported network gives a report, and the same bytes if it is repeated."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from tornet.runnable import RunnableTornet

from onionlab.errors import UserError
from onionlab.programs.installed import ONIONTRACE, find_tool

from .checkout import REPOSITORY, Checkout, arguments
from .test_end_to_end import ENGINES

NAME = "imported"
OF_THE_MACHINE = ("manifest.json", "uml.log", "free.log", "uml.result.json")
"""Files of a run that describe the machine, and so differ between otherwise equal runs."""

pytestmark = [pytest.mark.slow, pytest.mark.tor]


def import_network(checkout: Checkout, directory: Path) -> None:
    """Write a network to ``directory`` and import it. The import also writes an experiment.

    If OnionTrace is not installed, the experiment is changed so that it does not use OnionTrace.
    """
    # The import writes into this folder, which is a link to the shipped one. Replace it by a copy.
    experiments = checkout.root / "experiments"
    experiments.unlink()
    shutil.copytree(REPOSITORY / "experiments", experiments)
    written = RunnableTornet().write(directory)
    checkout.onionlab("import-network", str(written), "--name", NAME)
    try:
        find_tool(ONIONTRACE)
    except UserError:
        path = experiments / f"{NAME}.yaml"
        text = path.read_text()
        assert "oniontrace: as-imported" in text
        path.write_text(text.replace("oniontrace: as-imported", "oniontrace: none"))


def words(verb: str, engine: str) -> list[str]:
    """Return the arguments of a command for the only run of the variant rr."""
    return [verb, *arguments(engine, experiment=Path(NAME))]


def the_run(checkout: Checkout) -> str:
    """Return the name of the only planned run."""
    (run_id,) = checkout.run_names(NAME)
    return run_id


def hashes_of_run(checkout: Checkout) -> dict[str, str]:
    """Return the SHA-256 of each file of a finished run, except OF_THE_MACHINE."""
    directory = checkout.store.run(the_run(checkout))
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in OF_THE_MACHINE
    }


@ENGINES
def test_an_imported_network_to_its_report(
    engine: str, checkout: Checkout, circuit_policy_build: None, tmp_path: Path
) -> None:
    import_network(checkout, tmp_path / "tornet-1")
    done = checkout.onionlab(*words("experiment", engine))
    results = checkout.results(NAME)
    assert done.stdout.splitlines()[-1] == str(results / "report.html")
    run = checkout.store.run(the_run(checkout))
    manifest = json.loads((run / "manifest.json").read_text())
    # The network has one authority, six relays, an onion service and three clients.
    assert manifest["proofs"] == {"Circuit policy in use: RR.": 11}
    (records,) = run.glob("records-*")
    downloads = pq.read_table(records / "perf.parquet")
    for name in ("perf-exit", "perf-onion"):
        own = downloads.filter(pc.equal(downloads["class"].cast("string"), name))
        assert pc.sum(own["success"]).as_py() >= 10, name
        assert f",{name},download_ttlb_50kib_p50_s," in (results / "summary.csv").read_text()
    parse = json.loads((records / "parse.json").read_text())
    assert parse["streams"]["markov-exit"]["success"] >= 20
    checkout.onionlab("export-tornettools", NAME)


@pytest.mark.uml
def test_it_gives_the_same_bytes_elsewhere(
    uml_kernel: object, circuit_policy_build: None, tmp_path: Path
) -> None:
    places = tmp_path / "one", tmp_path / "a folder with a much longer name" / "checkout"
    hashes = []
    for place in places:
        place.mkdir(parents=True)
        checkout = Checkout(place)
        import_network(checkout, place / "tornet-1")
        checkout.onionlab(*words("run", "uml"))
        hashes.append(hashes_of_run(checkout))
    assert hashes[0] == hashes[1]
    # The compared files include each host's logs of Tor and of the traffic.
    assert sum(path.endswith(".stdout") for path in hashes[0]) >= 15
