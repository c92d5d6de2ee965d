"""ccache: what was compiled once on a machine is not compiled again, in whichever checkout.

A build is the same to the byte with and without it: ccache goes by the preprocessed source, the
options and the compiler. Its files are in a folder of this program's own below the user's caches,
limited in size. Where it is not installed, or has no place for its files, compilers run as ever.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

PROGRAM = "ccache"
USERS_CHOICES = ("CCACHE_DIR", "CCACHE_DISABLE", "CCACHE_MAXSIZE", "CCACHE_RECACHE")
"""Variables of ccache that reach it from the environment; none of them changes a build."""
SIZE = "4G"
"""Of the folder, at most. The kernel, libtorrent and all builds of Tor took 0.14 GB."""


def through_cache(compiler: str) -> str:
    """The command for ``compiler``, as make takes it in CC or CXX."""
    return compiler if _folder() is None else f"{PROGRAM} {compiler}"


def cache_environment() -> dict[str, str]:
    """What ccache is to find in the environment; empty where it is not used."""
    folder = _folder()
    if folder is None:
        return {}
    chosen = {name: os.environ[name] for name in USERS_CHOICES if name in os.environ}
    return {
        "CCACHE_DIR": str(folder),
        "CCACHE_MAXSIZE": SIZE,
        "CCACHE_NAMESPACE": _assembler(),
        # What was included is read from the list that the compiler writes (-MD): without it, ccache
        # has each file preprocessed first, which takes a quarter of the time to compile it.
        "CCACHE_DEPEND": "1",
        # Our compilers are told to leave the folder's own path out.
        "CCACHE_NOHASHDIR": "1",
        # Precompiled headers, whose macros ccache cannot see: make compiles those anew that change.
        "CCACHE_SLOPPINESS": "pch_defines,time_macros",
    } | chosen


def _folder() -> Path | None:
    """Where ccache keeps its files; None where it cannot be used."""
    if shutil.which(PROGRAM) is None:
        return None
    named = os.environ.get("CCACHE_DIR")
    try:
        folder = Path(named) if named else _users_caches() / "onionlab" / PROGRAM
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        # A home that is missing or read-only: compiling works there too.
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _users_caches() -> Path:
    """The XDG base directory for what can be made again."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named) if Path(named).is_absolute() else Path.home() / ".cache"


@functools.cache
def _assembler() -> str:
    """Stands for the assembler's version, which ccache does not look at."""
    try:
        said = subprocess.run(["as", "--version"], capture_output=True, check=False).stdout
    except OSError:
        said = b""
    return f"onionlab-{hashlib.sha256(said).hexdigest()[:16]}"
