"""Use ccache, so that a machine compiles identical files only once, in all checkouts.

ccache reuses an object file if the source, its included files, the options and the compiler are the
same, so a build is byte-identical with and without it. By default ccache's files are in
``onionlab/ccache`` below the user's folder of caches, and limited in size. If ccache is not
installed or has no writable folder, compilers run without it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

PROGRAM = "ccache"
USER_VARIABLES = ("CCACHE_DIR", "CCACHE_DISABLE", "CCACHE_MAXSIZE", "CCACHE_RECACHE")
"""ccache variables that are passed on from the environment. They do not change a build."""
SIZE = "4G"
"""The size limit of the folder. The kernel, libtorrent and all builds of Tor use 0.14 GB."""


def through_cache(compiler: str) -> str:
    """Return the value of make's CC or CXX that runs ``compiler``, through ccache if possible."""
    return compiler if _folder() is None else f"{PROGRAM} {compiler}"


def cache_environment() -> dict[str, str]:
    """Return the variables for ccache's environment, empty if ccache is not used."""
    folder = _folder()
    if folder is None:
        return {}
    chosen = {name: os.environ[name] for name in USER_VARIABLES if name in os.environ}
    return {
        "CCACHE_DIR": str(folder),
        "CCACHE_MAXSIZE": SIZE,
        "CCACHE_NAMESPACE": _assembler(),
        # Read the included files from the list that the compiler writes (-MD). Otherwise ccache
        # would preprocess each file first, which takes a quarter of the compile time.
        "CCACHE_DEPEND": "1",
        # Do not hash the path of the build folder. Our compiler options (-ffile-prefix-map) keep it
        # out of objects.
        "CCACHE_NOHASHDIR": "1",
        # Without this, ccache does not cache files with a precompiled header, because it does not
        # see the macros in that header. make recompiles these files if the header changes.
        "CCACHE_SLOPPINESS": "pch_defines,time_macros",
    } | chosen


def _folder() -> Path | None:
    """Return ccache's folder, or None if it cannot be used."""
    if shutil.which(PROGRAM) is None:
        return None
    named = os.environ.get("CCACHE_DIR")
    try:
        folder = Path(named) if named else _users_caches() / "onionlab" / PROGRAM
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        # The home directory is missing or read-only, so compilers run without ccache.
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _users_caches() -> Path:
    """Return the XDG base directory for caches."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named) if Path(named).is_absolute() else Path.home() / ".cache"


@functools.cache
def _assembler() -> str:
    """Return a name that identifies the assembler's version, which ccache does not check."""
    try:
        said = subprocess.run(["as", "--version"], capture_output=True, check=False).stdout
    except OSError:
        said = b""
    return f"onionlab-{hashlib.sha256(said).hexdigest()[:16]}"
