"""Where experiments lie, and what they are called."""

from __future__ import annotations

import os
import re
from pathlib import Path

from onionlab.errors import UserError
from onionlab.paths import is_file
from onionlab.yamlfile.units import nearest, show

EXPERIMENTS = "experiments"
SUFFIX = ".yaml"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Folders of results that are other commands', which an experiment of the same name would share.
OF_OTHERS = re.compile(r"figures(?:-.*)?|compare|nightly|celltrace-live|.*-engines")
# What else lies in the folder.
NOT_EXPERIMENTS = ("nightly.yaml",)
LIST_HINT = "`make list` shows all experiments"


def experiment_names(root: Path) -> list[str]:
    """The names of all experiments, sorted (parts to extend are not among them)."""
    files = (root / EXPERIMENTS).glob(f"*{SUFFIX}")
    return sorted(path.stem for path in files if path.name not in NOT_EXPERIMENTS)


def is_path(name_or_path: str) -> bool:
    """Whether this names a file, and not an experiment of `experiments/`."""
    return name_or_path.endswith((SUFFIX, ".yml")) or os.sep in name_or_path


def find_experiment(name_or_path: str, root: Path) -> Path:
    """The file of an experiment, by its name or by a path that ends in ``.yaml``.

    Raises:
        UserError: no such file, or one whose name no experiment can have.
    """
    if is_path(name_or_path):
        path = Path(name_or_path)
        if not is_file(path):
            raise UserError(f"no experiment file {show(name_or_path)}", LIST_HINT)
    else:
        path = root / f"{EXPERIMENTS}/{name_or_path}{SUFFIX}"
        names = experiment_names(root)
        if name_or_path not in names:
            raise UserError(
                f"no experiment called {show(name_or_path)}{nearest(name_or_path, names)}",
                LIST_HINT,
            )
    if NAME.fullmatch(path.stem) is None:
        raise UserError(
            f"{path}: an experiment is named like its file, and this name cannot be used: "
            "expected lower-case letters, digits and hyphens"
        )
    if OF_OTHERS.fullmatch(path.stem) is not None:
        raise UserError(
            f"{path}: an experiment is named like its file, and results/{path.stem} is for what "
            "another command makes",
            "give the file another name",
        )
    return path
