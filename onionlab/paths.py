"""Paths of the checkout: its code, the user's files and everything that the program writes.

In the whole package, a parameter `root` is the folder that `working_root` returns.
onionlab/setup.sh checks this folder with ``python -m onionlab.paths`` before any installation.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from onionlab.errors import UserError

# If bytes of a path are not UTF-8, Python decodes them as the surrogates \udc80 to \udcff.
_REFUSED = re.compile(r'[\x00-\x1f\x7f"$`\\{}:\udc80-\udcff]')


# Path.is_file and Path.is_dir raise OSError if a name is too long, or if the path is in a folder
# that may not be searched. Users may name such paths, so these functions return False.


def is_file(path: Path) -> bool:
    """Return whether the path is a file; False if this cannot be found out."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder; False if this cannot be found out."""
    return os.path.isdir(path)  # noqa: PTH112


def code_root() -> Path:
    """Return the folder that contains both packages, onionlab and analysis."""
    return Path(__file__).resolve().parents[1]


def working_root() -> Path:
    """Return the checkout: the folder of the code, the user's files and all output.

    Raises:
        UserError: The path has a character that venv, Snakemake, apt or the kernel of the embedded
            engine cannot handle.
    """
    root = code_root()
    refused = _REFUSED.search(str(root))
    if refused:
        raise UserError(
            f"the path of this checkout, {str(root)!a}, contains {refused[0]!a}, which programs "
            "that it uses cannot handle",
            "move or rename the folder",
        )
    return root


def build_directory(root: Path) -> Path:
    """Return the folder of builds, keys and other files that can be rebuilt. Git ignores it."""
    return root / "build"


def networks_directory(root: Path) -> Path:
    """Return the folder of imported networks.

    It is not in the build folder, which may be deleted: the keys of imported relays cannot be
    generated again.
    """
    return root / "networks"


if __name__ == "__main__":
    try:
        working_root()
    except UserError as error:
        sys.exit(f"error: {error.message}\n{error.hint}")
