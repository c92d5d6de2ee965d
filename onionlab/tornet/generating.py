"""Networks made by an installed tornettools from what its `stage` wrote, and then imported.

tornettools samples the hosts by its `--seed`, but has our Tor, as released, draw keys by chance.
Before the import others take their place that depend on the seed, so that the same inputs give the
same network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onionlab.errors import UserError
from onionlab.paths import is_folder, networks_directory
from onionlab.tornet.keeping import KeptTornet, import_tornets, seeds_of
from onionlab.tornet.model import Tornet

VARIABLE = "TORNETTOOLS"
DOCUMENTATION = "https://github.com/shadow/tornettools"
STAGED = ("relayinfo_staging*.json", "userinfo_staging*.json", "networkinfo_staging*.gml")
"""What `tornettools stage` writes, in the order of the arguments of `generate`."""
OURS = ("--prefix", "--tor", "--torgencert")
"""Options of `generate` that the command sets; `--seed` is tornettools' own, before `generate`."""
RECORD = ("-r", "--record")
FILES = ("-a", "--atlas", "-g", "--geoip_path")
"""Options of `generate` that name files."""
TMODEL_FOLDER = "data"
LAST_LINES = 12


@dataclass(frozen=True)
class Tors:
    """Programs that draw keys and certificates."""

    tor: Path
    gencert: Path


def generate_tornets(
    root: Path,
    name: str,
    seeds: int,
    *,
    staged: Path,
    tmodel: Path,
    options: Sequence[str],
    tors: Tors,
    draw_keys: Callable[[Path, int], None],
    say: Callable[[str], None],
    before_rename: Callable[[Tornet, int], None] = lambda _network, _count: None,
) -> list[KeptTornet]:
    """Have tornettools generate networks with the seeds 1 to `seeds`, and import them.

    Args:
        root: The checkout.
        name: Of the set of networks, which must be new.
        seeds: How many networks.
        staged: A folder with what `tornettools stage` wrote.
        tmodel: A folder with tmodel's data, as `generate` wants it.
        options: Further options of `generate`, such as ``--network_scale``.
        tors: What draws keys first.
        draw_keys: Replaces them, in a directory that tornettools wrote, by those of a seed.
        say: Receives a line for each network.
        before_rename: As `import_tornets` takes it.

    Raises:
        UserError: tornettools is missing or fails, an input is missing, or what it made cannot be
            imported. Nothing was imported then.
    """
    program = find_tornettools()
    if seeds_of(root, name):
        raise UserError(
            f"there are networks {name} already",
            "choose another name; make import-network adds seeds to those that are there",
        )
    _require_free(options)
    inputs = [str(_only(staged, pattern)) for pattern in STAGED]
    if not is_folder(tmodel / TMODEL_FOLDER):
        raise UserError(
            f"{tmodel} has no folder {TMODEL_FOLDER}",
            "it is to be a copy of https://github.com/tmodel-ccs2018/tmodel-ccs2018.github.io",
        )
    place = networks_directory(root).absolute() / ".generating" / uuid.uuid4().hex
    place.mkdir(parents=True)
    try:
        made = []
        for seed in range(1, seeds + 1):
            say(f"network {seed} of {seeds}: tornettools generate, seed {seed}")
            target = place / f"tornet-{seed}"
            _generate(
                [str(program), "-s", str(seed), "generate", *inputs, str(tmodel.resolve())],
                [*_with_absolute_files(options), "--prefix", str(target)],
                tors,
                place,
            )
            draw_keys(target, seed)
            made.append(target)
        return import_tornets(root, name, made, before_rename)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if not any(place.parent.iterdir()):
            place.parent.rmdir()


def find_tornettools() -> Path:
    """tornettools: from the variable TORNETTOOLS, else from the PATH. Raises UserError."""
    named = os.environ.get(VARIABLE) or None
    found = shutil.which(named or "tornettools")
    if found is None:
        raise UserError(
            f"there is no {named}" if named else "tornettools is not installed",
            f"How to install it: {DOCUMENTATION}\nIf it is installed elsewhere, name the "
            f"executable: {VARIABLE}=/path/to/tornettools",
        )
    return Path(found).absolute()


def _only(folder: Path, pattern: str) -> Path:
    """The file of a folder that is named so. Raises UserError unless there is one."""
    found = sorted(folder.glob(pattern)) if is_folder(folder) else []
    if len(found) != 1:
        what = "no" if not found else f"{len(found)} of"
        raise UserError(
            f"{folder} has {what} {pattern}",
            "it is to hold what one `tornettools stage` wrote",
        )
    return found[0].resolve()


def _require_free(options: Sequence[str]) -> None:
    """Raises UserError where options are the command's own, or make what cannot be imported."""
    names = [word.partition("=")[0] for word in options]
    if taken := sorted({name for name in names if name == "--seed" or _means(name, OURS)}):
        raise UserError(f"{', '.join(taken)}: not here", "the command decides that itself")
    if recorded := [name for name in names if _means(name, RECORD)]:
        raise UserError(
            f"{recorded[0]}: not here",
            "it starts a second OnionTrace on each host, whose log cannot be told from the first's",
        )


def _means(name: str, options: Sequence[str]) -> bool:
    """Whether argparse takes a word for one of the options: abbreviated, or with a value behind."""
    if name.startswith("--"):
        return len(name) > 2 and any(option.startswith(name) for option in options)
    return name[:2] in options


def _with_absolute_files(options: Sequence[str]) -> list[str]:
    """The options, for a program that works in another folder."""
    found = []
    is_file = False
    for word in options:
        name, equals, value = word.partition("=")
        if is_file:
            found.append(str(Path(word).absolute()))
            is_file = False
        elif not _means(name, FILES):
            found.append(word)
        elif equals:
            found.append(f"{name}={Path(value).absolute()}")
        elif word.startswith("--") or len(word) == 2:
            found.append(word)
            is_file = True
        else:
            found.append(word[:2] + str(Path(word[2:]).absolute()))
    return found


def _generate(words: Sequence[str], options: Sequence[str], tors: Tors, folder: Path) -> None:
    """Call tornettools in a folder of its own: tor-gencert writes into the current one."""
    ours = ["--tor", str(tors.tor.absolute()), "--torgencert", str(tors.gencert.absolute())]
    done = subprocess.run(
        [*words, *ours, *options],
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
