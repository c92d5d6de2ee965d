"""Write the files of an experiment whose variants are unpatched commits of Tor."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from onionlab.errors import UserError
from onionlab.experiment import Experiment
from onionlab.paths import is_file
from onionlab.programs.tor.tor_source import ID_LENGTH
from onionlab.programs.tor.variants import OWN_FILE_VARIABLE, STOCK, load_variants

STYLES = (("#000000", "o", "-"), ("#882255", "^", "--"), ("#117733", "s", ":"))
"""Colour, marker and line style of the first, second and third variant in figures."""

MAX_SLUG = 60
"""Maximum length of a slug. A file name can consist of three slugs: one for the experiment and one
for each of two commits."""


def write_experiment(
    root: Path,
    folder: Path,
    name: str,
    extends: str,
    repository: Path,
    variants: Mapping[str, tuple[str, str]],
) -> Path:
    """Write an experiment that extends another one and runs ``variants``. Return its path.

    The variants are defined in a second file, variants.yaml. Its path is assigned to the
    environment variable VARIANTS_FILE, which jobs inherit.

    Args:
        root: The checkout.
        folder: The folder in which both files are written.
        name: The name of the experiment.
        extends: Name or path of the experiment that gives all other settings.
        repository: The local repository of Tor; an absolute path.
        variants: At most three variants: name -> commit, and label in figures and tables. The first
            variant is the baseline. The commit is a hash or a branch. If the branch is checked out,
            uncommitted changes are built too.
    """
    path = Path(extends)
    base = str(path.resolve()) if is_file(path) else f"{extends}.yaml"
    os.environ.pop(OWN_FILE_VARIABLE, None)
    stock = load_variants(root)[STOCK]
    entries = {
        variant: {
            "description": f"Tor at {label}",
            "label": label,
            **dict(zip(("color", "marker", "linestyle"), style, strict=True)),
            "source": {"git": str(repository), "ref": ref},
            "torrc": dict(stock.torrc),
        }
        for (variant, (ref, label)), style in zip(variants.items(), STYLES, strict=False)
    }
    names = list(variants)
    labels = " and ".join(label for _, label in variants.values())
    settings = {
        "title": f"Tor at {labels}, in the experiment {path.stem}",
        "description": f"The network, load and times of {path.stem}, with Tor at {labels}.",
        "extends": base,
        "tor": {"variants": names, "baseline": names[0]},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in (("variants", {"variants": entries}), (name, settings)):
        # Write JSON, which is valid YAML and quotes every string. PyYAML would write a hash such as
        # 12e4 without quotes, and the hash would be read as a number.
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (folder / f"{file}.yaml").write_text(text, "utf-8")
    os.environ[OWN_FILE_VARIABLE] = str(folder / "variants.yaml")
    return folder / f"{name}.yaml"


def require_tor(experiment: Experiment) -> None:
    """Raise UserError if an experiment does not run Tor."""
    if experiment.kind == "peers":
        raise UserError(
            f"{experiment.name} does not run Tor", "name another experiment: NAME=today"
        )


def shorten(ref: str) -> str:
    """Return a full hash cut to the length that names of builds use, or any other ref unchanged."""
    return ref[:ID_LENGTH] if re.fullmatch("[0-9a-f]{40}", ref) else ref


def slug(ref: str) -> str:
    """Return a short form of a ref with only a-z, 0-9 and "-", for names of variants and files."""
    short = re.sub(r"[^a-z0-9]+", "-", shorten(ref).lower()).strip("-")
    return short.removeprefix("tor-")[:MAX_SLUG].rstrip("-") or "ref"
