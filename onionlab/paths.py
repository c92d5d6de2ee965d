"""Where things stand: what is shipped with the program, and what is made with it.

In a checkout both are the checkout: experiments, patches and results are files beside the code.
Installed from a wheel, the program carries what is shipped in its own folder `share`; runs, results
and builds then go below the current directory, and files there go before the shipped ones.

A function that takes `root` takes the working root; every place follows from it by this module.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from onionlab.errors import UserError

SHARE = Path(__file__).resolve().with_name("share")
"""What setup.py puts into a wheel; a checkout has no such folder."""

# setup.sh refuses the same before anything is installed. The last range: bytes that are not UTF-8.
_REFUSED = re.compile(r'[\x00-\x1f\x7f"$`\\{}:\udc80-\udcff]')


# Of names that somebody gave: one that no file can have (too long, with a NUL) names none, and a
# folder that may not be searched holds none. Path's own methods raise OSError or ValueError there.


def is_file(path: Path) -> bool:
    """Whether a file is there."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether a folder is there."""
    return os.path.isdir(path)  # noqa: PTH112


def is_there(path: Path) -> bool:
    """Whether anything is there."""
    return os.path.exists(path)  # noqa: PTH110


def code_root() -> Path:
    """The folder that holds both packages: the checkout, or site-packages."""
    return Path(__file__).resolve().parents[1]


def is_checkout() -> bool:
    """Whether the program runs from a checkout, and not from where a wheel was installed."""
    return not SHARE.is_dir()


def working_root() -> Path:
    """Return the folder that holds the user's own files and everything that is made.

    Raises:
        UserError: Snakemake, apt or the guest's kernel cannot handle a character of its path.
    """
    root = code_root() if is_checkout() else Path.cwd()
    refused = _REFUSED.search(str(root))
    if refused:
        raise UserError(
            f"{str(root)!a}: its path contains {refused[0]!a}, which programs that are used "
            "here cannot handle",
            "move or rename the folder",
        )
    return root


def shipped(root: Path, relative: str | Path) -> Path:
    """A file or folder that is shipped: the working root's own where it has one.

    Where nothing is shipped under that name either, it is the place where the root's would be.
    """
    own, other = root / relative, SHARE / relative
    return own if is_there(own) or not is_there(other) else other


def shipped_files(root: Path, folder: str, pattern: str) -> dict[str, Path]:
    """Files of a folder and below, by their paths in it, in order; the root's own go first.

    pattern: as `Path.glob` takes it.
    """
    found = {
        path.relative_to(base / folder).as_posix(): path
        for base in (SHARE, root)
        for path in (base / folder).glob(pattern)
    }
    return dict(sorted(found.items()))


def build_directory(root: Path) -> Path:
    """Everything that can be made again: Tor's source and binaries, caches. Git ignores it."""
    return root / "build"


def networks_directory(root: Path) -> Path:
    """Networks that were imported: their keys cannot be made again. Git ignores it."""
    return root / "networks"
