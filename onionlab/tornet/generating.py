"""Generate networks with an installed tornettools from its staged files, and import them.

tornettools samples the hosts by its `--seed` but has our Tor, as released, generate random keys.
Before the import these are replaced by keys that depend on the seed, so that the same inputs result
in the same network.
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
from onionlab.tornet.keeping import KeptTornet, import_tornets, list_seeds
from onionlab.tornet.model import Tornet

VARIABLE = "TORNETTOOLS"
DOCUMENTATION = "https://github.com/shadow/tornettools"
STAGED = ("relayinfo_staging*.json", "userinfo_staging*.json", "networkinfo_staging*.gml")
"""The output of `tornettools stage`, in the order of the arguments of `generate`."""
RESERVED_OPTIONS = ("--prefix", "--tor", "--torgencert")
"""Options of `generate` that the command sets itself, in addition to `--seed` of tornettools."""
RECORD = ("-r", "--record")
FILES = ("-a", "--atlas", "-g", "--geoip_path")
"""Options of `generate` whose value is a file."""
TMODEL_FOLDER = "data"
LAST_LINES = 12


@dataclass(frozen=True)
class TorPrograms:
    """The programs that generate keys and certificates."""

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
    tors: TorPrograms,
    draw_keys: Callable[[Path, int], None],
    say: Callable[[str], None],
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
        tors: The programs that generate the original keys.
        draw_keys: Replaces these keys in a directory that tornettools wrote by those of a seed.
        say: Receives a line for each network.
        before_rename: See `import_tornets`.

    Raises:
        UserError: tornettools is missing or fails, an input is missing, or its output cannot be
            imported. In these cases nothing was imported.
    """
    program = find_tornettools()
    if list_seeds(root, name):
        raise UserError(
            f"networks {name} already exist",
            "choose another name; use make import-network to add seeds to existing networks",
        )
    _check_options(options)
    inputs = [str(_single_file(staged, pattern)) for pattern in STAGED]
    if not is_folder(tmodel / TMODEL_FOLDER):
        raise UserError(
            f"{tmodel} has no folder {TMODEL_FOLDER}",
            "use a copy of https://github.com/tmodel-ccs2018/tmodel-ccs2018.github.io",
        )
    place = networks_directory(root).absolute() / ".generating" / uuid.uuid4().hex
    place.mkdir(parents=True)
    try:
        generated = []
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
            generated.append(target)
        return import_tornets(root, name, generated, before_rename)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if not any(place.parent.iterdir()):
            place.parent.rmdir()


def find_tornettools() -> Path:
    """Find tornettools by the variable TORNETTOOLS, else on the PATH. Raises UserError."""
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
    """Return the only file of a folder that matches. Raises UserError for none or several."""
    found = sorted(folder.glob(pattern)) if is_folder(folder) else []
    if len(found) != 1:
        what = "no" if not found else f"{len(found)} files"
        raise UserError(
            f"{folder} has {what} {pattern}",
            "use a folder with the output of one `tornettools stage`",
        )
    return found[0].resolve()


def _check_options(options: Sequence[str]) -> None:
    """Raise UserError for options that the command sets itself or that prevent the import."""
    names = [word.partition("=")[0] for word in options]
    if taken := sorted(
        {name for name in names if name == "--seed" or _matches(name, RESERVED_OPTIONS)}
    ):
        raise UserError(f"{', '.join(taken)}: not allowed", "the command sets it")
    if recorded := [name for name in names if _matches(name, RECORD)]:
        raise UserError(
            f"{recorded[0]}: not allowed",
            "it starts a second OnionTrace on each host, whose log cannot be distinguished from "
            "the first's",
        )


def _matches(name: str, options: Sequence[str]) -> bool:
    """Return whether argparse would parse a word as one of the options, possibly abbreviated."""
    if name.startswith("--"):
        return len(name) > 2 and any(option.startswith(name) for option in options)
    return name[:2] in options


def _with_absolute_files(options: Sequence[str]) -> list[str]:
    """Return the options with absolute paths, for a program with another working directory."""
    found = []
    is_file = False
    for word in options:
        name, equals, value = word.partition("=")
        if is_file:
            found.append(str(Path(word).absolute()))
            is_file = False
        elif not _matches(name, FILES):
            found.append(word)
        elif equals:
            found.append(f"{name}={Path(value).absolute()}")
        elif word.startswith("--") or len(word) == 2:
            found.append(word)
            is_file = True
        else:
            found.append(word[:2] + str(Path(word[2:]).absolute()))
    return found


def _generate(
    words: Sequence[str], options: Sequence[str], tors: TorPrograms, folder: Path
) -> None:
    """Run tornettools in the given folder, because tor-gencert writes to the current one."""
    programs = ["--tor", str(tors.tor.absolute()), "--torgencert", str(tors.gencert.absolute())]
    done = subprocess.run(
        [*words, *programs, *options],
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
