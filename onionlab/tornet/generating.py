"""Generate networks with an installed tornettools from staged files, and import them.

Staged files are the output of `tornettools stage`.

tornettools chooses the hosts by its `--seed`, but it has a Tor (here onionlab's build without
patches) generate random keys. Before the import, keys that depend on the seed replace these random
keys, so that the same inputs result in the same network.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from onionlab.errors import UserError
from onionlab.paths import is_folder, networks_directory
from onionlab.tornet.keeping import KeptTornet, import_tornets, list_seeds
from onionlab.tornet.model import Tornet

LOG = logging.getLogger(__name__)
VARIABLE = "TORNETTOOLS"
DOCUMENTATION = "https://github.com/shadow/tornettools"
STAGED = ("relayinfo_staging*.json", "userinfo_staging*.json", "networkinfo_staging*.gml")
"""The output of `tornettools stage`, in the order of the arguments of `generate`."""
RESERVED_OPTIONS = ("--prefix", "--tor", "--torgencert")
"""Options of `generate` that users may not give, because this module sets them."""
RECORD = ("-r", "--record")
FILES = (("-a", "--atlas"), ("-g", "--geoip_path"))
"""Options of `generate` whose value is the path of a file."""
TMODEL_FOLDER = "data"
LAST_LINES = 12


def generate_tornets(
    root: Path,
    name: str,
    seeds: int,
    *,
    staged: Path,
    tmodel: Path,
    options: Sequence[str],
    build_tor: Callable[[], Path],
    draw_keys: Callable[[Path, int], None],
    before_rename: Callable[[Tornet, int], None] = lambda _network, _count: None,
) -> list[KeptTornet]:
    """Have tornettools generate networks with the seeds 1 to `seeds`, and import them.

    Args:
        root: The checkout.
        name: The name of the set of networks, which must be new.
        seeds: The number of networks.
        staged: A folder with the output of `tornettools stage`.
        tmodel: A folder with tmodel's data, as `generate` expects it.
        options: Further options of `generate`, such as ``--network_scale``.
        build_tor: Builds the Tor that generates the original keys, with tor-gencert in the same
            folder, and returns its path. It is called after the other inputs are checked.
        draw_keys: Replaces all keys in a directory of tornettools with keys derived from a seed.
        before_rename: See `import_tornets`.

    Raises:
        UserError: tornettools is missing or fails, an input is missing, or the output of
            tornettools cannot be imported. In these cases, nothing was imported.
    """
    program = find_tornettools()
    if list_seeds(root, name):
        raise UserError(
            f"networks {name} already exist",
            "choose another name; use make import-network to add seeds to existing networks",
        )
    options = _checked(options)
    inputs = [str(_single_file(staged, pattern)) for pattern in STAGED]
    if not is_folder(tmodel / TMODEL_FOLDER):
        raise UserError(
            f"{tmodel} has no folder {TMODEL_FOLDER}",
            "use a copy of https://github.com/tmodel-ccs2018/tmodel-ccs2018.github.io",
        )
    tor = build_tor().absolute()
    gencert = tor.with_name("tor-gencert")
    inputs += [str(tmodel.resolve()), "--tor", str(tor), "--torgencert", str(gencert)]
    place = networks_directory(root).absolute() / ".generating" / uuid.uuid4().hex
    place.mkdir(parents=True)
    try:
        generated = []
        for seed in range(1, seeds + 1):
            LOG.info("network %d of %d: tornettools generate, seed %d", seed, seeds, seed)
            target = place / f"tornet-{seed}"
            words = ["-s", str(seed), "generate", *inputs, *options, "--prefix", str(target)]
            _run_in(place, [str(program), *words])
            draw_keys(target, seed)
            generated.append(target)
        return import_tornets(root, name, generated, before_rename)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if not any(place.parent.iterdir()):
            place.parent.rmdir()


def find_tornettools() -> Path:
    """Find tornettools by the variable TORNETTOOLS or, if it is not set, on the PATH.

    Raises UserError if tornettools is missing.
    """
    named = os.environ.get(VARIABLE) or None
    found = shutil.which(named or "tornettools")
    if found is None:
        raise UserError(
            f"{named} not found" if named else "tornettools is not installed",
            f"How to install it: {DOCUMENTATION}\nIf it is installed elsewhere, specify the "
            f"executable: {VARIABLE}=/path/to/tornettools",
        )
    return Path(found).absolute()


def _single_file(folder: Path, pattern: str) -> Path:
    """Return the only file that matches. Raises UserError if no file or several files match."""
    found = sorted(folder.glob(pattern)) if is_folder(folder) else []
    if len(found) != 1:
        what = "no" if not found else f"{len(found)} files"
        raise UserError(
            f"{folder} has {what} {pattern}",
            "use a folder with the output of one `tornettools stage`",
        )
    return found[0].resolve()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise UserError. By default, argparse would print a usage message and exit."""
        raise UserError(f"tornettools generate: {message}", "correct OPTIONS")


def _checked(options: Sequence[str]) -> list[str]:
    """Return the options with absolute paths, because tornettools runs in another directory.

    Raises UserError for options that this module sets itself or that prevent the import.
    """
    # --seed is an option of tornettools itself, so it is rejected. The parser below must not know
    # --seed: otherwise it would read --se, an abbreviation of --server_scale, as --seed.
    if "--seed" in [word.partition("=")[0] for word in options]:
        raise UserError("--seed: not allowed", "the command sets it")
    parser = _Parser(add_help=False)
    for name in RESERVED_OPTIONS:
        parser.add_argument(name, nargs="?", const="")
    parser.add_argument(*RECORD, nargs="?", const="")
    for names in FILES:
        parser.add_argument(*names)
    given, others = parser.parse_known_args(options)
    values = vars(given)
    for name in RESERVED_OPTIONS:
        if values[name.lstrip("-")] is not None:
            raise UserError(f"{name}: not allowed", "the command sets it")
    if given.record is not None:
        raise UserError(
            f"{RECORD[1]}: not allowed",
            "it starts a second OnionTrace on each host, whose log cannot be distinguished from "
            "the first's",
        )
    for _, name in FILES:
        path = values[name.lstrip("-")]
        others += [name, str(Path(path).absolute())] if path is not None else []
    return others


def _run_in(folder: Path, words: Sequence[str]) -> None:
    """Run tornettools in the given folder, because tor-gencert writes to the current folder."""
    done = subprocess.run(
        words,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines()[-LAST_LINES:]
        raise UserError(
            f"tornettools generate failed (exit status {done.returncode})",
            "its last lines:\n" + "\n".join(f"  {line[:300]}" for line in lines),
        )
