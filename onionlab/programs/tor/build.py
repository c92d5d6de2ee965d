"""Build Tor: compile one base tree per source and derive a build for each patch series.

The layout under ``build/tor``::

    source/               Debian's source package and its record
    base/KEY/configured/  Tor as released, configured
    base/KEY/tree/        the same, compiled, if several builds can use it
    base/KEY/unit-tests/  the same with its unit tests compiled, for the quick check
    unit-tests/KEY/test   a series' unit tests, for the quick check
    store/KEY/bin/        a finished build: tor-SERIES and tor-gencert
    SERIES -> store/KEY   the build for the present source and patches
    logs/                 the compiler's whole output

KEY is a hash of everything that a build depends on: source, patches, options of configure, compiler
and libraries. Each build runs in its own directory and is put in place by one rename, so a killed
build is never mistaken for a complete one, and a running experiment keeps the executables that it
started with. The executables contain neither paths nor times: the same inputs result in the same
bytes in every checkout.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.errors import UserError
from onionlab.programs.building import (
    BuiltProgram,
    build_lock,
    intact_build,
    is_linked,
    link_build,
    put_build,
    read_build,
)
from onionlab.programs.patches import Series
from onionlab.programs.sources import find_source
from onionlab.programs.tor.build_trees import (
    COMPILED,
    FORMAT,
    PROGRAMS,
    TOR,
    Inputs,
    build_key,
    check_patches_apply,
    compile_targets,
    ensure_base,
    ensure_configured,
    find_toolchain,
    patched_tree,
    prepare,
    provenance,
    tor_directory,
)
from onionlab.programs.tor.variants import STOCK, load_variants, tor_series

MIN_SERIES_FOR_BASE = 3
"""The number of series from which on a compiled base saves time. Most files of Tor include a header
that a series changes, so a compiled base saves each series only a third of its build time."""

GENCERT = "tor-gencert"

IN_EVERY_TOR = frozenset(
    {"max-consensus-age-to-cache-for-diff", "try-diff-for-consensus-newer-than"}
)
"""Parameters that every Tor since 0.3.1 reads. Their names are local arrays in Tor's source, which
the compiler turns into instructions, so an executable does not contain them as strings."""


@dataclass(frozen=True)
class BuiltTor(BuiltProgram):
    """One finished build: ``build/tor/SERIES/bin/tor-SERIES``, in one folder with ``tor-gencert``.

    series: the patch series; None for Tor as released.
    """

    series: str | None

    @property
    def torrc_options(self) -> frozenset[str]:
        """The torrc options that the executable supports."""
        return _torrc_options(self.path, self.sha256)

    def unread_parameters(self, names: Iterable[str]) -> list[str]:
        """Return the consensus parameters among ``names`` that the executable does not read."""
        program = _program(self.path, self.sha256)
        # Tor does not list its parameters. Each name is a C string of the executable.
        return [
            name
            for name in names
            if name not in IN_EVERY_TOR and name.encode() + b"\0" not in program
        ]


def ensure_variants(
    root: Path,
    names: Iterable[str],
    *,
    tor_source: str | None = None,
    update_source: bool = False,
    jobs: int | None = None,
) -> dict[str, BuiltTor]:
    """Build the variants ``names`` unless they exist. Return the builds by variant.

    Args:
        root: The checkout.
        names: Variants of ``tor-patches/variants.yaml``.
        tor_source: Tarball or tree to build from; by default the variable TOR_SOURCE, and Debian's
            source package if that is not set either.
        update_source: Fetch the current source package even if one was fetched before.
        jobs: The number of parallel compilers; by default one per CPU.

    Raises:
        UserError: Unknown variant, no source, a patch that does not apply, a failed build.
    """
    variants = load_variants(root)
    names = list(names)
    for name in names:
        if name not in variants:
            raise UserError(
                f"unknown variant {name!r}",
                f"Variants in tor-patches/variants.yaml: {', '.join(variants)}.",
            )
    series = {variants[name].series for name in names}
    builds = ensure_series(
        root, series, tor_source=tor_source, update_source=update_source, jobs=jobs
    )
    return {name: builds[variants[name].series] for name in names}


def ensure_series(
    root: Path,
    wanted: Iterable[str | None],
    *,
    tor_source: str | None = None,
    update_source: bool = False,
    jobs: int | None = None,
) -> dict[str | None, BuiltTor]:
    """Build patch series like :func:`ensure_variants`; None means Tor as released."""
    series = {
        name: tor_series(root, name) if name is not None else None
        for name in sorted(set(wanted), key=lambda name: name or "")
    }
    if not update_source:
        # Finished builds do not change, so use them without waiting for the build lock.
        finished = _finished(root, series, tor_source)
        if finished is not None:
            return finished
    with build_lock(tor_directory(root), "Tor"):
        inputs = prepare(root, tor_source=tor_source, update_source=update_source, jobs=jobs)
        missing = [one for one in series.values() if _read(inputs, one) is None]
        if len(missing) > 1:
            check_patches_apply(inputs, filter(None, missing))
        if None in missing or len(missing) >= MIN_SERIES_FOR_BASE:
            ensure_base(inputs)
        return {name: _ensure_build(inputs, one) for name, one in series.items()}


def _finished(
    root: Path, series: Mapping[str | None, Series | None], tor_source: str | None
) -> dict[str | None, BuiltTor] | None:
    """Return the builds of all series, or None if one is missing."""
    source = find_source(TOR, tor_directory(root) / "source", tor_source)
    if source is None:
        return None
    inputs = Inputs(root, source, find_toolchain())
    builds: dict[str | None, BuiltTor] = {}
    for name, one in series.items():
        link, target = _places(inputs, one)
        built = intact_build(inputs.directory / target, f"tor-{series_name(one)}", GENCERT)
        if built is None or not is_linked(link, target):
            return None
        builds[name] = _built_tor(link, one, built)
    return builds


def series_name(series: Series | None) -> str:
    """Return the name of a build on disk."""
    return STOCK if series is None else series.name


def _places(inputs: Inputs, series: Series | None) -> tuple[Path, Path]:
    """Return the path of a build's link and the link's relative target."""
    name = series_name(series)
    return inputs.directory / name, Path("store") / f"{name}-{build_key(inputs, series)}"


def _read(inputs: Inputs, series: Series | None) -> dict[str, Any] | None:
    store = inputs.directory / _places(inputs, series)[1]
    return read_build(store, f"tor-{series_name(series)}", GENCERT)


def _ensure_build(inputs: Inputs, series: Series | None) -> BuiltTor:
    link, target = _places(inputs, series)
    built = _read(inputs, series)
    if built is None:
        built = _build(inputs, series, inputs.directory / target)
    link_build(link, target)
    return _built_tor(link, series, built)


def _built_tor(link: Path, series: Series | None, built: Mapping[str, Any]) -> BuiltTor:
    return BuiltTor(
        path=link / "bin" / f"tor-{series_name(series)}",
        version=built["version"],
        sha256=built["sha256"],
        source=built["source"],
        series=None if series is None else series.name,
    )


def _build(inputs: Inputs, series: Series | None, store: Path) -> dict[str, Any]:
    name = series_name(series)
    compiled = inputs.base / COMPILED
    start = compiled if compiled.is_dir() else ensure_configured(inputs)
    with patched_tree(inputs, start, series) as tree:
        if series is not None:
            compile_targets(inputs, tree, PROGRAMS, f"tor-{name}")
        return put_build(
            tree.parent,
            store,
            {f"tor-{name}": tree / "src/app/tor", GENCERT: tree / "src/tools/tor-gencert"},
            build_format=FORMAT,
            version=_ask_version,
            source=provenance(inputs, series),
        )


@functools.cache
def _torrc_options(tor: Path, sha256: str) -> frozenset[str]:
    # The hash is only part of the cache key: another executable may replace the first one.
    del sha256
    result = subprocess.run(
        [tor, "--list-torrc-options"], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise UserError(f"{tor} does not list its options: {result.stderr.strip()}")
    return frozenset(result.stdout.split())


@functools.lru_cache(maxsize=4)
def _program(tor: Path, sha256: str) -> bytes:
    del sha256
    return tor.read_bytes()


def _ask_version(tor: Path) -> str:
    result = subprocess.run([tor, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"^Tor version (\S+?)\.?(?:\s|$)", result.stdout)
    if match is None:
        said = (result.stdout + result.stderr).strip() or f"exit status {result.returncode}"
        raise UserError(f"the Tor that was just built does not start: {said}")
    return match[1]
