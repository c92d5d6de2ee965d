"""From the name of an experiment to its fully resolved settings, or to one list of what is wrong.

A file is read, merged on top of what it extends (extending.py), checked for unknown keys, parsed by
the models and checked for impossible settings (resolving.py). Every step keeps the line each value
was written on.
"""

from __future__ import annotations

import functools
from pathlib import Path

from onionlab.experiment.checks import KnownNames
from onionlab.experiment.experiment import Experiment
from onionlab.experiment.extending import Reader
from onionlab.experiment.finding import find_experiment
from onionlab.experiment.resolving import resolve
from onionlab.experiment.tor_options import read_defaults
from onionlab.experiment.tornettools import KIND as TORNETTOOLS
from onionlab.experiment.tornettools_networks import knowing_networks
from onionlab.network.geography import known_capacities, known_geographies
from onionlab.paths import is_file
from onionlab.programs.libtorrent.variants import FOLDER as LIBTORRENT_FOLDER
from onionlab.programs.libtorrent.variants import load_peer_variants
from onionlab.programs.tor.variants import FOLDER as TOR_FOLDER
from onionlab.programs.tor.variants import load_variants
from onionlab.yamlfile.reading import as_user_error, in_order

REFERENCE_HINT = (
    "docs/reference/experiments.md explains the keys; `onionlab schema --reference` lists them"
)


def load(name_or_path: str, *, root: Path) -> Experiment:
    """Load an experiment by its name, or from a path that ends in ``.yaml``.

    Raises:
        UserError: no such experiment, or everything that is wrong with its file, one line each
            (file, line, path of keys, what was expected, the nearest valid name).
    """
    path = find_experiment(name_or_path, root)
    known = _known_names(root)
    reader = Reader(root)
    tree = reader.read(path)
    problems = reader.problems
    experiment = None
    if tree is not None:
        experiment, more = resolve(tree, path.stem, tuple(reader.files), known)
        problems = problems + more
    if problems or experiment is None:
        raise as_user_error(reader.display(path), in_order(problems, reader.files), REFERENCE_HINT)
    if experiment.kind == TORNETTOOLS:
        return knowing_networks(root, experiment)
    return experiment


def _known_names(root: Path) -> KnownNames:
    variants = None
    if (root / f"{TOR_FOLDER}/variants.yaml").is_file():
        variants = load_variants(root)
    peers = None
    if (root / f"{LIBTORRENT_FOLDER}/variants.yaml").is_file():
        peers = frozenset(load_peer_variants(root))
    return KnownNames(
        variants=variants,
        peers=peers,
        capacities=known_capacities(root),
        geographies=known_geographies(root),
        is_file=functools.partial(_is_file, root),
        tor_defaults=read_defaults(root),
    )


def _is_file(root: Path, path: str) -> bool:
    return is_file(root / path)
