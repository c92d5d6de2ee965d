"""Build Tor: compile one base tree per source and derive a build for each patch series.

The layout under ``build/tor``::

    source/                     Debian's source package and its record
    config-status/KEY           results of configure, for all sources with the same script
    base/KIND-KEY/configured/   Tor as released, configured
    base/KIND-KEY/tree/         the same, compiled, if several builds can use it
    base/KIND-KEY/unit-tests/   the same with its unit tests compiled, for the quick check
    unit-tests/SERIES-KEY/test  a series' unit tests, for the quick check
    store/SERIES-KEY/bin/       a finished build: tor-SERIES and tor-gencert
    SERIES -> store/SERIES-KEY  a link to the build for the present source and patches
    logs/                       the compiler's whole output

SERIES is ``stock`` for Tor as released. A build from a variant's own source has SERIES-ID in place
of SERIES in its names, with the id of the source. KIND is ``plain``, or ``hardened`` with
sanitizers. KEY is a hash of everything that the folder depends on: source or script, patches,
options of configure, compiler and libraries. Each build runs in its own directory and is put in
place by one rename, so a killed build is never mistaken for a complete one, and a running
experiment keeps the executables that it started with. The executables contain neither paths nor
times: the same inputs result in the same bytes in every checkout.
"""

from __future__ import annotations

import contextlib
import functools
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
from onionlab.programs.registry import require_known
from onionlab.programs.tor.build_trees import (
    COMPILED,
    FORMAT,
    PROGRAMS,
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
from onionlab.programs.tor.tor_source import TorSource, find_tor_source
from onionlab.programs.tor.variants import (
    FOLDER,
    STOCK,
    TorBuild,
    group_by_build,
    load_variants,
    tor_series,
)

MIN_SERIES_FOR_BASE = 3
"""The minimum number of series for which a compiled base tree saves time. The tree costs one more
build, and saves each series only a third of a build, because most files include a header that a
series changes."""

GENCERT = "tor-gencert"

IN_EVERY_TOR = frozenset(
    {"max-consensus-age-to-cache-for-diff", "try-diff-for-consensus-newer-than"}
)
"""Consensus parameters that every Tor since 0.3.1 reads. Their names are local arrays in Tor's
source, which the compiler turns into instructions, so an executable does not contain them as
strings."""


@dataclass(frozen=True)
class BuiltTor(BuiltProgram):
    """One finished build: ``build/tor/SERIES/bin/tor-SERIES``, next to its ``tor-gencert``.

    series: the patch series; None for Tor as released. source_id: `Source.id`.
    """

    series: str | None
    source_id: str = ""

    @functools.cached_property
    def torrc_options(self) -> frozenset[str]:
        """The torrc options that the executable supports."""
        command = [str(self.path), "--list-torrc-options"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise UserError(f"{self.path} does not list its options: {result.stderr.strip()}")
        return frozenset(result.stdout.split())

    def unread_parameters(self, names: Iterable[str]) -> list[str]:
        """Return the consensus parameters among ``names`` that the executable does not read."""
        program = self.path.read_bytes()
        # Tor does not list its parameters. Each name is a C string of the executable.
        named = [name for name in names if name not in IN_EVERY_TOR]
        return [name for name in named if name.encode() + b"\0" not in program]


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
        tor_source: Tarball or tree to build from; by default the source that the variable
            TOR_SOURCE names, or else Debian's source package.
        update_source: Fetch the current source package even if one was fetched before.
        jobs: The number of parallel compilers; by default one per CPU.

    Raises:
        UserError: Unknown variant, no source, a patch that does not apply, a failed build.
    """
    variants = load_variants(root)
    names = list(names)
    require_known(names, variants, FOLDER)
    wanted = group_by_build(variants[name] for name in names)
    builds = ensure_builds(
        root, wanted, tor_source=tor_source, update_source=update_source, jobs=jobs
    )
    return {name: builds[variants[name].build] for name in names}


def ensure_series(
    root: Path, wanted: Iterable[str | None], *, tor_source: str | None = None
) -> dict[str | None, BuiltTor]:
    """Build Tor with each series of patches (None: without patches); see `ensure_variants`."""
    builds = ensure_builds(root, {TorBuild(name): () for name in wanted}, tor_source=tor_source)
    return {build.series: built for build, built in builds.items()}


def ensure_builds(
    root: Path,
    wanted: Mapping[TorBuild, Sequence[str]],
    *,
    tor_source: str | None = None,
    update_source: bool = False,
    jobs: int | None = None,
) -> dict[TorBuild, BuiltTor]:
    """Build Tor like :func:`ensure_variants`.

    wanted: build -> the variants that use it; errors name these variants. Before anything is
    compiled, all sources are found. If several builds are missing, all patches are tried, too.
    """
    ordered = sorted(wanted, key=lambda build: (build.series or "", str(build.source or "")))
    series = {build: tor_series(root, build.series) if build.series else None for build in ordered}
    if not update_source:
        # Finished builds do not change, so use them without waiting for the build lock.
        finished = _finished(root, series, wanted, tor_source)
        if finished is not None:
            return finished
    with build_lock(tor_directory(root), "Tor"):
        inputs: dict[TorSource | None, Inputs] = {}
        for build in ordered:
            if build.source not in inputs:
                with _naming(wanted[build]):
                    inputs[build.source] = prepare(
                        root,
                        build.source,
                        tor_source=tor_source,
                        update_source=update_source,
                        jobs=jobs,
                    )
        missing = [one for one in ordered if _read(inputs[one.source], series[one]) is None]
        if len(missing) > 1:
            for build in missing:
                with _naming(wanted[build]):
                    check_patches_apply(inputs[build.source], filter(None, [series[build]]))
        for source, its in inputs.items():
            count = sum(build.source == source for build in missing)
            if TorBuild(None, source) in missing or count >= MIN_SERIES_FOR_BASE:
                with _naming(
                    [name for one in missing if one.source == source for name in wanted[one]]
                ):
                    ensure_base(its)
        builds = {}
        for build in ordered:
            with _naming(wanted[build]):
                builds[build] = _ensure_build(inputs[build.source], series[build])
        return builds


@contextlib.contextmanager
def _naming(variants: Sequence[str]) -> Iterator[None]:
    """Prefix the messages of errors in the block with the names of variants, if there are any."""
    try:
        yield
    except UserError as error:
        if not variants:
            raise
        word = "variant" if len(variants) == 1 else "variants"
        message = f"{word} {', '.join(variants)}: {error.message}"
        raise type(error)(message, error.hint) from error


def _finished(
    root: Path,
    series: Mapping[TorBuild, Series | None],
    wanted: Mapping[TorBuild, Sequence[str]],
    tor_source: str | None,
) -> dict[TorBuild, BuiltTor] | None:
    """Return all builds, or None if a build is missing or a source has to be fetched.

    series: build -> its patches; wanted: build -> the variants that use it, for messages.
    """
    builds: dict[TorBuild, BuiltTor] = {}
    toolchain = find_toolchain()
    for build, one in series.items():
        with _naming(wanted[build]):
            source = find_tor_source(tor_directory(root), build.source, tor_source)
        if source is None:
            return None
        inputs = Inputs(root, source, toolchain)
        link, target = _places(inputs, one)
        built = intact_build(inputs.directory / target, f"tor-{link.name}", GENCERT)
        if built is None or not is_linked(link, target):
            return None
        builds[build] = _built_tor(inputs, one, built)
    return builds


def series_name(series: Series | None) -> str:
    """Return the name of a series in names of builds; STOCK for Tor as released."""
    return STOCK if series is None else series.name


def _places(inputs: Inputs, series: Series | None) -> tuple[Path, Path]:
    """Return the path of a build's link and the link's relative target."""
    name = "-".join(filter(None, [series_name(series), inputs.source.id]))
    return inputs.directory / name, Path("store") / f"{name}-{build_key(inputs, series)}"


def _read(inputs: Inputs, series: Series | None) -> BuiltProgram | None:
    link, target = _places(inputs, series)
    return read_build(inputs.directory / target, f"tor-{link.name}", GENCERT)


def _ensure_build(inputs: Inputs, series: Series | None) -> BuiltTor:
    link, target = _places(inputs, series)
    built = _read(inputs, series) or _build(inputs, series, link.name, inputs.directory / target)
    link_build(link, target)
    return _built_tor(inputs, series, built)


def _built_tor(inputs: Inputs, series: Series | None, built: BuiltProgram) -> BuiltTor:
    link, _ = _places(inputs, series)
    return BuiltTor(
        path=link / "bin" / f"tor-{link.name}",
        version=built.version,
        sha256=built.sha256,
        source=built.source,
        series=None if series is None else series.name,
        source_id=inputs.source.id,
    )


def _build(inputs: Inputs, series: Series | None, name: str, store: Path) -> BuiltProgram:
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


def _ask_version(tor: Path) -> str:
    result = subprocess.run([tor, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"^Tor version (\S+?)\.?(?:\s|$)", result.stdout)
    if match is None:
        said = (result.stdout + result.stderr).strip() or f"exit status {result.returncode}"
        raise UserError(f"the Tor that was just built does not start: {said}")
    return match[1]
