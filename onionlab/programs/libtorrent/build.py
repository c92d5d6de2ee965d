"""Build libtorrent's peers: compile one base tree with the observer and derive each variant.

The layout under ``build/libtorrent``::

    source/                  Debian's source package and its record
    base/KEY/tree/           libtorrent with the observer, compiled
    store/VARIANT-KEY/bin/   a finished build: libtorrent-peer-VARIANT
    logs/                    the compiler's whole output

KEY is a hash of everything that a build depends on. Each build runs in its own directory and is put
in place by one rename, so a killed build is never mistaken for a complete one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.durable import put_in_place
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    apply_patch,
    build_lock,
    building_directory,
    ensure_building_allowed,
    first_line,
    hash_inputs,
    new_log,
    patched_copy,
    put_build,
    read_build,
    run_logged,
)
from onionlab.programs.compiler_cache import through_cache
from onionlab.programs.libtorrent.source import ENVIRONMENT_VARIABLE, obtain_source, unpack_source
from onionlab.programs.libtorrent.variants import (
    FOLDER,
    PeerVariant,
    base_series,
    load_peer_variants,
    load_variant_series,
)
from onionlab.programs.patches import Series
from onionlab.programs.sources import Source
from onionlab.programs.system_packages import install_packages

FORMAT = 1
"""A part of every key. Increase it when the build procedure changes."""

PROGRAM = "libtorrent-peer"
COMPILER = "g++"
BOOST = Path("/usr/include/boost/version.hpp")
PATCHES_HINT = (
    "The patches are written for libtorrent 2.0.8. Use a source that they apply to: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/libtorrent-rasterbar-2.0.x.tar.gz."
)


@dataclass(frozen=True)
class BuiltPeer:
    """One finished build.

    Attributes:
        variant: The variant's name.
        path: The executable, ``libtorrent-peer-VARIANT``.
        sha256: SHA-256 of the executable.
        version: libtorrent's version, e.g. ``2.0.8``.
        source: Provenance (source, patches, compiler, options) as JSON, for manifests.
    """

    variant: str
    path: Path
    sha256: str
    version: str
    source: dict[str, Any]


@dataclass(frozen=True)
class _Inputs:
    """The inputs that all builds of one call share.

    Attributes:
        own: This project's files that are compiled with libtorrent.
        wanted: The variants to build.
    """

    root: Path
    source: Source
    own: dict[str, bytes]
    wanted: tuple[PeerVariant, ...]
    toolchain: dict[str, str]
    jobs: int
    say: Callable[[str], None]

    @property
    def directory(self) -> Path:
        """``build/libtorrent``."""
        return build_directory(self.root) / "libtorrent"


def peer_program(variant: str) -> str:
    """Return the base name of a variant's executable."""
    return f"{PROGRAM}-{variant}"


def ensure_peers(
    root: Path, names: Iterable[str], *, say: Callable[[str], None], jobs: int | None = None
) -> dict[str, BuiltPeer]:
    """Build the variants ``names`` unless they exist. Return the builds by variant.

    The first build compiles about a hundred files, which takes about five minutes on one CPU.

    Args:
        root: The checkout.
        names: Variants of ``libtorrent-patches/variants.yaml``.
        say: Receives progress, a line at a time.
        jobs: The number of parallel compilers; by default one per CPU.

    Raises:
        UserError: Unknown variant, no source, a patch that does not apply, a failed build.
    """
    variants = load_peer_variants(root)
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in variants:
            raise UserError(
                f"unknown variant {name!r}",
                f"Variants in {FOLDER}/variants.yaml: {', '.join(variants)}.",
            )
    directory = build_directory(root) / "libtorrent"
    with build_lock(directory, "libtorrent", say):
        inputs = _Inputs(
            root=root,
            source=obtain_source(directory, os.environ.get(ENVIRONMENT_VARIABLE), say=say),
            own=_read_peer_files(root),
            wanted=tuple(variants[name] for name in names),
            toolchain=_toolchain(),
            jobs=jobs or len(os.sched_getaffinity(0)),
            say=say,
        )
        return {name: _ensure_build(inputs, variants[name]) for name in names}


def _read_peer_files(root: Path) -> dict[str, bytes]:
    """Return the peer's source and its build rules, keyed by their paths in libtorrent's tree."""
    folder = root / FOLDER
    paths = [folder / "build.mk", *sorted((folder / "peer").glob("*.[ch]pp"))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


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
    compiler = first_line(COMPILER, "--version")
    boost = BOOST.read_text("utf-8", errors="replace")
    version = next(
        (line.split()[-1] for line in boost.splitlines() if "define BOOST_LIB_VERSION" in line), ""
    )
    return {
        "compiler": compiler,
        "machine": first_line(COMPILER, "-dumpmachine"),
        "linker": first_line("ld", "--version"),
        "boost": version.strip('"'),
    }


def _missing_packages() -> list[str]:
    """Return the Debian packages that the build needs and that are not installed."""
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
    # Only the source's content matters: the same tarball from elsewhere is the same source.
    decisive = {**provenance, "libtorrent": inputs.source.sha256, "format": FORMAT}
    return hash_inputs(decisive)


def _ensure_build(inputs: _Inputs, variant: PeerVariant) -> BuiltPeer:
    series = (base_series(inputs.root), *load_variant_series(inputs.root, variant))
    provenance = _provenance(inputs, series, inputs.own)
    store = inputs.directory / "store" / f"{variant.name}-{_key(inputs, provenance)}"
    program = peer_program(variant.name)
    built = read_build(inputs, store, program)
    if built is None:
        built = _build(inputs, variant, provenance, store)
    return BuiltPeer(
        variant.name, store / "bin" / program, built["sha256"], built["version"], built["source"]
    )


def _build(
    inputs: _Inputs, variant: PeerVariant, provenance: dict[str, Any], store: Path
) -> dict[str, Any]:
    program = peer_program(variant.name)
    base, version = _ensure_base(inputs)
    own = load_variant_series(inputs.root, variant)
    with patched_copy(inputs, base, own, inputs.source.path.name, PATCHES_HINT) as tree:
        for name, content in inputs.own.items():
            (tree / name).parent.mkdir(exist_ok=True)
            (tree / name).write_bytes(content)
        _make(inputs, tree, PROGRAM, program, new_log(inputs, program))
        return put_build(
            inputs,
            tree.parent,
            store,
            {program: tree / PROGRAM},
            build_format=FORMAT,
            version=lambda _: version,
            source=provenance,
        )


def _ensure_base(inputs: _Inputs) -> tuple[Path, str]:
    """Return the compiled tree with the observer, which must not be modified, and its version."""
    series = base_series(inputs.root)
    key = _key(inputs, _provenance(inputs, [series], ["build.mk"]))
    base = inputs.directory / "base" / key
    tree = base / "tree"
    record = base / "version"
    if tree.is_dir() and record.is_file():
        return tree, record.read_text(encoding="utf-8")
    log = new_log(inputs, "base")
    with building_directory(inputs) as work:
        staged = work / "base"
        staged.mkdir()
        version = unpack_source(inputs.source, staged / "tree")
        inputs.say(f"libtorrent {version}: building the base that all variants start from")
        for patch in series.patches:
            apply_patch(staged / "tree", patch, inputs.source.path.name, PATCHES_HINT)
        # Check that all patches apply before compiling the library.
        for variant in inputs.wanted:
            own = load_variant_series(inputs.root, variant)
            with patched_copy(inputs, staged / "tree", own, inputs.source.path.name, PATCHES_HINT):
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
    run_logged(inputs, command, tree, log, f"{what}: compile")
