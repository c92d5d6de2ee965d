"""Import a small network into a checkout, and describe its only run, which takes seconds."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tornet.runnable import RunnableTornet

from onionlab.errors import UserError
from onionlab.programs.installed import ONIONTRACE, find_tool

from .checkout import REPOSITORY, Checkout

NAME = "imported"
OF_THE_MACHINE = ("manifest.json", "uml.log", "free.log", "uml.result.json")
"""Files of a run that contain facts about the machine, which differ between equal runs."""


def import_network(checkout: Checkout, directory: Path) -> None:
    """Write a network to ``directory`` and import it, which also writes an experiment with it.

    If OnionTrace is not installed, the experiment is changed to run without it.
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


def words(verb: str, engine: str, *more: str) -> list[str]:
    """Return the arguments of a command for the only run of the variant rr."""
    return [verb, NAME, "--engine", engine, "--variants", "rr", *more]


def the_run(checkout: Checkout) -> str:
    """Return the name of the only run, which must have been planned."""
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
