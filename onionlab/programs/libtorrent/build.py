"""Build libtorrent's peers: compile one base tree and derive each variant from it.

The base tree includes the observer, a patch with which peers log their windows and requests. The
layout under ``build/libtorrent``::

    source/                  Debian's source package and its record
    base/KEY/tree/           the compiled base tree
    store/VARIANT-KEY/bin/   a finished build: libtorrent-peer-VARIANT
    logs/                    the compiler's whole output

KEY is a hash of everything that a build depends on. Each build runs in its own directory and is put
in place by one rename, so a killed build is never mistaken for a complete one.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.durable import put_in_place
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    BuiltProgram,
    apply_patch,
    build_lock,
    building_directory,
    ensure_building_allowed,
    first_line,
    hash_inputs,
    install_packages,
    new_log,
    patched_copy,
    put_build,
    read_build,
    run_logged,
)
from onionlab.programs.compiler_cache import through_cache
from onionlab.programs.libtorrent.variants import (
    FOLDER,
    base_series,
    load_peer_variants,
    load_variant_series,
)
from onionlab.programs.patches import Series
from onionlab.programs.registry import require_known
from onionlab.programs.sources import Program, Source, obtain_source, read_if_present, unpack_source

LOG = logging.getLogger(__name__)
FORMAT = 1
"""A part of every `_key`. Increase it when the build procedure changes."""

PROGRAM = "libtorrent-peer"
COMPILER = "g++"
BOOST = Path("/usr/include/boost/version.hpp")
VARIABLE = "LIBTORRENT_SOURCE"
SOURCE_HINT = (
    "To build from your own source, specify a release tarball: "
    f"{VARIABLE}=/path/to/libtorrent-rasterbar-2.0.x.tar.gz "
    "(releases: https://github.com/arvidn/libtorrent/releases)."
)
PATCHES_HINT = (
    "The patches are written for libtorrent 2.0.8. Use a source that they apply to: "
    f"{VARIABLE}=/path/to/libtorrent-rasterbar-2.0.x.tar.gz."
)


def libtorrent_version(tree: Path, origin: Path) -> str:
    """Return the version according to libtorrent's header.

    Raises UserError if the tree, which comes from ``origin``, is not libtorrent's source.
    """
    text = read_if_present(tree / "include/libtorrent/version.hpp")
    numbers = dict(re.findall(r"LIBTORRENT_VERSION_(MAJOR|MINOR|TINY) (\d+)", text))
    if len(numbers) < 3:
        raise UserError(f"{origin} is not libtorrent's source: it has no version.hpp", SOURCE_HINT)
    return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "TINY"))


LIBTORRENT = Program(
    name="libtorrent",
    variable=VARIABLE,
    hint=SOURCE_HINT,
    version=libtorrent_version,
    package="libtorrent-rasterbar",
)


@dataclass(frozen=True)
class _Inputs:
    """The inputs that all builds of one call of `ensure_peers` have in common.

    directory: the folder ``build/libtorrent``. own: files of this project that are compiled in
    libtorrent's tree: path in the tree -> content. observer: the patch that all builds have.
    wanted: the variants to build, each with its own patches.
    """

    directory: Path
    source: Source
    own: dict[str, bytes]
    observer: Series
    wanted: dict[str, tuple[Series, ...]]
    toolchain: dict[str, str]
    jobs: int


def peer_program(variant: str) -> str:
    """Return the base name of a variant's executable."""
    return f"{PROGRAM}-{variant}"


def ensure_peers(
    root: Path, names: Iterable[str], *, jobs: int | None = None
) -> dict[str, BuiltProgram]:
    """Build the variants ``names`` unless they exist. Return the builds by variant.

    The first build compiles about a hundred files, which takes about five minutes on one CPU. jobs:
    the number of parallel compilers; by default one per CPU. Raises UserError for an unknown
    variant, a missing source, a patch that does not apply, or a failed build.
    """
    variants = load_peer_variants(root)
    names = list(dict.fromkeys(names))
    require_known(names, variants, FOLDER)
    directory = build_directory(root) / "libtorrent"
    folder = root / FOLDER
    own = [folder / "build.mk", *sorted((folder / "peer").glob("*.[ch]pp"))]
    with build_lock(directory, "libtorrent"):
        inputs = _Inputs(
            directory=directory,
            source=obtain_source(LIBTORRENT, directory / "source"),
            own={path.relative_to(folder).as_posix(): path.read_bytes() for path in own},
            observer=base_series(root),
            wanted={name: load_variant_series(root, variants[name]) for name in names},
            toolchain=_toolchain(),
            jobs=jobs or len(os.sched_getaffinity(0)),
        )
        return {name: _ensure_build(inputs, name) for name in names}


def _toolchain() -> dict[str, str]:
    lacking = _missing_packages()
    if lacking:
        ensure_building_allowed(f"libtorrent's build needs {' '.join(lacking)}")
        install_packages("libtorrent")
        lacking = _missing_packages()
    if lacking:
        names = " ".join(lacking)
        raise UserError(
            f"packages that libtorrent's build needs are missing: {names}",
            f"On Debian and Ubuntu: apt-get install {names}",
        )
    boost = re.search(
        r'define BOOST_LIB_VERSION "(.*)"', BOOST.read_text("utf-8", errors="replace")
    )
    return {
        "compiler": first_line(COMPILER, "--version"),
        "machine": first_line(COMPILER, "-dumpmachine"),
        "linker": first_line("ld", "--version"),
        "boost": boost[1] if boost else "",
    }


def _missing_packages() -> list[str]:
    """Return the missing Debian packages that the build needs."""
    absent = {"g++": not first_line(COMPILER, "--version"), "libboost-dev": not BOOST.is_file()}
    return [name for name, is_absent in absent.items() if is_absent]


def _provenance(inputs: _Inputs, series: Iterable[Series], own: Iterable[str]) -> dict[str, Any]:
    """Return everything that determines a build's content, as JSON."""
    return {
        "libtorrent": inputs.source.facts,
        "patches": [patch for one in series for patch in one.provenance],
        "files": {name: hashlib.sha256(inputs.own[name]).hexdigest() for name in own},
        "toolchain": inputs.toolchain,
    }


def _key(inputs: _Inputs, provenance: dict[str, Any]) -> str:
    # The hash of the source replaces the facts about the source, such as its file's name, because
    # the same content from another place results in the same build.
    return hash_inputs({**provenance, "libtorrent": inputs.source.sha256, "format": FORMAT})


def _ensure_build(inputs: _Inputs, variant: str) -> BuiltProgram:
    provenance = _provenance(inputs, (inputs.observer, *inputs.wanted[variant]), inputs.own)
    store = inputs.directory / "store" / f"{variant}-{_key(inputs, provenance)}"
    program = peer_program(variant)
    if built := read_build(store, program):
        return built
    base, version = _ensure_base(inputs)
    with _patched_copy(inputs, base, variant) as tree:
        for name, content in inputs.own.items():
            (tree / name).parent.mkdir(exist_ok=True)
            (tree / name).write_bytes(content)
        _make(inputs, tree, PROGRAM, program, new_log(inputs.directory, program))
        return put_build(
            tree.parent,
            store,
            {program: tree / PROGRAM},
            build_format=FORMAT,
            version=lambda _: version,
            source=provenance,
        )


def _patched_copy(
    inputs: _Inputs, base: Path, variant: str
) -> contextlib.AbstractContextManager[Path]:
    own, origin = inputs.wanted[variant], inputs.source.path.name
    return patched_copy(inputs.directory, base, own, origin, PATCHES_HINT)


def _ensure_base(inputs: _Inputs) -> tuple[Path, str]:
    """Return the compiled base tree, which must not be modified, and libtorrent's version."""
    provenance = _provenance(inputs, [inputs.observer], ["build.mk"])
    base = inputs.directory / "base" / _key(inputs, provenance)
    tree, record = base / "tree", base / "version"
    if tree.is_dir() and record.is_file():
        return tree, record.read_text(encoding="utf-8")
    log = new_log(inputs.directory, "base")
    with building_directory(inputs.directory) as work:
        staged = work / "base"
        staged.mkdir()
        version = unpack_source(LIBTORRENT, inputs.source, staged / "tree")
        LOG.info("libtorrent %s: building the base that all variants start from", version)
        for patch in inputs.observer.patches:
            apply_patch(staged / "tree", patch, inputs.source.path.name, PATCHES_HINT)
        # Check that all patches apply before compiling the library.
        for variant in inputs.wanted:
            with _patched_copy(inputs, staged / "tree", variant):
                pass
        (staged / "tree" / "build.mk").write_bytes(inputs.own["build.mk"])
        _make(inputs, staged / "tree", "library", f"libtorrent {version}", log)
        (staged / "version").write_text(version, encoding="utf-8")
        base.parent.mkdir(exist_ok=True)
        shutil.rmtree(base, ignore_errors=True)
        put_in_place(staged, base)
    return tree, version


def _make(inputs: _Inputs, tree: Path, target: str, what: str, log: Path) -> None:
    compiler = f"CXX={through_cache(COMPILER)}"
    command = ["make", "-f", "build.mk", f"-j{inputs.jobs}", compiler, target]
    run_logged(command, tree, log, f"{what}: compile")
