"""Build libtorrent's peers: one base tree with the observer, each variant a small step from it.

The layout under ``build/libtorrent``::

    source/                  Debian's source package and what is known of it
    base/KEY/tree/           libtorrent with the observer, compiled
    store/VARIANT-KEY/bin/   a finished build: libtorrent-peer-VARIANT
    logs/                    the compiler's whole output

KEY is a hash of everything that a build depends on. A build is made in a directory of its own and
put in place by one rename, so a killed build leaves nothing that could be taken for a whole one.
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
    build_key_of,
    build_lock,
    building_directory,
    first_line,
    new_log,
    patched_copy,
    put_build,
    read_build,
    require_leave_to_build,
    run_logged,
)
from onionlab.programs.compiler_cache import through_cache
from onionlab.programs.libtorrent.source import ENVIRONMENT_VARIABLE, obtain_source, unpack_source
from onionlab.programs.libtorrent.variants import (
    FOLDER,
    PeerVariant,
    base_series,
    load_peer_variants,
    series_of,
)
from onionlab.programs.patches import Series
from onionlab.programs.sources import Source
from onionlab.programs.system_packages import install_packages

FORMAT = 1
"""Part of every key: raise it when a build is made differently."""

PROGRAM = "libtorrent-peer"
COMPILER = "g++"
BOOST = Path("/usr/include/boost/version.hpp")
PATCHES_HINT = (
    "The patches are made for libtorrent 2.0.8. Name a source that they fit: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/libtorrent-rasterbar-2.0.x.tar.gz."
)


@dataclass(frozen=True)
class BuiltPeer:
    """One finished build.

    Attributes:
        variant: The variant's name.
        path: The executable, ``libtorrent-peer-VARIANT``.
        sha256: Of the executable.
        version: libtorrent's, e.g. ``2.0.8``.
        source: Where it comes from (source, patches, compiler, options); JSON, for manifests.
    """

    variant: str
    path: Path
    sha256: str
    version: str
    source: dict[str, Any]


@dataclass(frozen=True)
class _Inputs:
    """What every build of one call shares.

    Attributes:
        own: The files of ours that are compiled.
        wanted: The variants that are built.
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
    """The base name of a variant's executable."""
    return f"{PROGRAM}-{variant}"


def ensure_peers(
    root: Path, names: Iterable[str], *, say: Callable[[str], None], jobs: int | None = None
) -> dict[str, BuiltPeer]:
    """Build what the variants ``names`` need and return their builds, by variant.

    What is built already is taken as it is. The first build compiles some hundred files: about
    five minutes of one CPU.

    Args:
        root: The checkout.
        names: Variants of ``libtorrent-patches/variants.yaml``.
        say: Receives progress, a line at a time.
        jobs: How many compilers at once; by default one for each CPU.

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
            own=_own_files(root),
            wanted=tuple(variants[name] for name in names),
            toolchain=_toolchain(),
            jobs=jobs or len(os.sched_getaffinity(0)),
            say=say,
        )
        return {name: _ensure_build(inputs, variants[name]) for name in names}


def _own_files(root: Path) -> dict[str, bytes]:
    """The program's source and the rules to compile it, by their places in libtorrent's tree."""
    folder = root / FOLDER
    paths = [folder / "build.mk", *sorted((folder / "peer").glob("*.[ch]pp"))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _toolchain() -> dict[str, str]:
    lacking = _missing_packages()
    if lacking:
        require_leave_to_build(f"libtorrent's build takes {' '.join(lacking)}")
        install_packages("libtorrent")
        lacking = _missing_packages()
    if lacking:
        names = " ".join(lacking)
        raise UserError(
            f"building libtorrent takes packages that are missing: {names}",
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
    """Debian packages that hold what the build takes and does not find."""
    absent = {"g++": not first_line(COMPILER, "--version"), "libboost-dev": not BOOST.is_file()}
    return [name for name, is_absent in absent.items() if is_absent]


def _provenance(inputs: _Inputs, series: Iterable[Series], own: Iterable[str]) -> dict[str, Any]:
    """Everything that decides what a build holds, as JSON."""
    return {
        "libtorrent": inputs.source.facts,
        "patches": [patch for one in series for patch in one.provenance],
        "files": {name: hashlib.sha256(inputs.own[name]).hexdigest() for name in own},
        "toolchain": inputs.toolchain,
    }


def _key(inputs: _Inputs, provenance: dict[str, Any]) -> str:
    # The source counts by its content alone: the same tarball from elsewhere is the same source.
    decisive = {**provenance, "libtorrent": inputs.source.sha256, "format": FORMAT}
    return build_key_of(decisive)


def _ensure_build(inputs: _Inputs, variant: PeerVariant) -> BuiltPeer:
    series = (base_series(inputs.root), *series_of(inputs.root, variant))
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
    own = series_of(inputs.root, variant)
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
    """The compiled tree with the observer, not to be changed, and its version."""
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
        # A patch that does not fit is refused before the library is compiled.
        for variant in inputs.wanted:
            own = series_of(inputs.root, variant)
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
