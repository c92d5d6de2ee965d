"""Build Tor: one base tree for a source, and each patch series as a step from it.

The layout under ``build/tor``::

    source/               Debian's source package and what is known of it
    base/KEY/configured/  Tor as released, configured
    base/KEY/tree/        the same, compiled; where enough is built for that to save time
    base/KEY/unit-tests/  the same with its unit tests compiled, for the quick check
    unit-tests/KEY/test   a series' unit tests, for the quick check
    store/KEY/bin/        a finished build: tor-SERIES and tor-gencert
    SERIES -> store/KEY   the build that belongs to the present source and patches
    logs/                 the compiler's whole output

KEY is a hash of everything that a build depends on: source, patches, configure's options, compiler
and libraries. A build is made in a directory of its own and put in place by one rename, so a killed
build leaves nothing that could be taken for a whole one, and a running experiment keeps the
executables that it began with. The executables hold neither paths nor times: the same inputs give
the same bytes in every checkout.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    build_key_of,
    build_lock,
    first_line,
    intact_build,
    new_log,
    patched_copy,
    put_build,
    read_build,
    run_logged,
    work_directory,
)
from onionlab.programs.registry import Series
from onionlab.programs.sources import Source
from onionlab.programs.tor.source import obtain_source, source_at_hand, unpack_source
from onionlab.programs.tor.variants import STOCK, load_variants, tor_series

FORMAT = 1
"""Part of every key: raise it when a build is made differently."""

BASE_PAYS = 3
"""From so many series on, what they share is compiled once, before the first of them: most files of
Tor include a header that a series changes, so that a compiled base saves each one a third."""

PROGRAMS = ("src/app/tor", "src/tools/tor-gencert")
GENCERT = "tor-gencert"
UNIT_TESTS = "src/test/test"

# The same choices on every machine, whatever happens to be installed: what a relay can do must not
# depend on who built it. Compression other than zlib, seccomp and systemd are of no use in a
# simulated network; documentation takes time.
CONFIGURE_OPTIONS = (
    "--prefix=/usr/local",
    "--disable-asciidoc",
    "--disable-html-manual",
    "--disable-manpage",
    "--disable-lzma",
    "--disable-zstd",
    "--disable-seccomp",
    "--disable-systemd",
    "--disable-libscrypt",
    # There is no option against libcap (it drops root's privileges, and nothing here runs as root
    # of its own machine): configure is told that it has looked and found none.
    "ac_cv_lib_cap_cap_init=no",
    "ac_cv_header_sys_capability_h=no",
)
# configure would record the absolute path of its helper `missing` here, and a copied tree would
# run the one of the tree that it was copied from.
AUTOTOOLS = ("ACLOCAL=aclocal", "AUTOCONF=autoconf", "AUTOHEADER=autoheader", "AUTOMAKE=automake")
CFLAGS = "-O2 -g"
QUICK_CFLAGS = "-O0"
"""Of unit tests that are to be ready soon."""
HARDENED_OPTION = "--enable-fragile-hardening"
"""Tor's own option for AddressSanitizer and UndefinedBehaviorSanitizer."""

PATCHES_HINT = (
    "The patches are made for Tor 0.4.9. For another version, bring the series up to date or "
    "name a source that it fits: TOR_SOURCE=/path/to/tor-0.4.9.x.tar.gz."
)
LIBRARIES = ("libevent", "openssl", "zlib")


@dataclass(frozen=True)
class BuiltTor:
    """One finished build.

    Attributes:
        series: The patch series; None for Tor as released.
        tor: The executable, ``build/tor/SERIES/bin/tor-SERIES``; ``tor-gencert`` stands beside it.
        sha256: Of the executable.
        version: What the executable says of itself, e.g. ``0.4.9.11``.
        source: Where it comes from (source, patches, compiler, options); JSON, for manifests.
    """

    series: str | None
    tor: Path
    sha256: str
    version: str
    source: dict[str, Any]

    @property
    def path(self) -> Path:
        """The executable, as every program that runs need calls it."""
        return self.tor

    @property
    def gencert(self) -> Path:
        """``tor-gencert`` of the same build."""
        return self.tor.with_name(GENCERT)


@dataclass(frozen=True)
class Toolchain:
    """Compiler and libraries, as far as they decide what comes out."""

    compiler: str
    description: dict[str, str]


@dataclass(frozen=True)
class Inputs:
    """What every build of one call shares."""

    root: Path
    source: Source
    toolchain: Toolchain
    jobs: int
    say: Callable[[str], None]

    @property
    def directory(self) -> Path:
        """``build/tor``."""
        return build_directory(self.root) / "tor"


def ensure_variants(
    root: Path,
    names: Iterable[str],
    *,
    say: Callable[[str], None],
    tor_source: str | None = None,
    update_source: bool = False,
    jobs: int | None = None,
) -> dict[str, BuiltTor]:
    """Build what the variants ``names`` need and return their builds, by variant.

    What is built already is taken as it is.

    Args:
        root: The checkout.
        names: Variants of ``tor-patches/variants.yaml``.
        say: Receives progress, a line at a time.
        tor_source: Tarball or tree to build from; by default the variable TOR_SOURCE, and Debian's
            source package where that is not set either.
        update_source: Fetch the source package anew.
        jobs: How many compilers at once; by default one for each CPU.

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
    builds = ensure_series(
        root,
        {variants[name].series for name in names},
        say=say,
        tor_source=tor_source,
        update_source=update_source,
        jobs=jobs,
    )
    return {name: builds[variants[name].series] for name in names}


def ensure_series(
    root: Path,
    wanted: Iterable[str | None],
    *,
    say: Callable[[str], None],
    tor_source: str | None = None,
    update_source: bool = False,
    jobs: int | None = None,
) -> dict[str | None, BuiltTor]:
    """Like :func:`ensure_variants`, for patch series; None stands for Tor as released."""
    series = {
        name: tor_series(root, name) if name is not None else None
        for name in sorted(set(wanted), key=lambda name: name or "")
    }
    if not update_source:
        # What is finished stays as it is: nobody has to wait for another build to use it.
        finished = _finished(root, series, tor_source, say)
        if finished is not None:
            return finished
    with build_lock(build_directory(root) / "tor", "Tor", say):
        inputs = prepare(
            root, say=say, tor_source=tor_source, update_source=update_source, jobs=jobs
        )
        missing = [one for one in series.values() if _read(inputs, one) is None]
        if None in missing or len(missing) >= BASE_PAYS:
            ensure_base(inputs)
        return {name: _ensure_build(inputs, one) for name, one in series.items()}


def _finished(
    root: Path,
    series: Mapping[str | None, Series | None],
    tor_source: str | None,
    say: Callable[[str], None],
) -> dict[str | None, BuiltTor] | None:
    """The builds of all series, if all are there."""
    source = source_at_hand(root, _named(tor_source))
    if source is None:
        return None
    inputs = Inputs(root=root, source=source, toolchain=find_toolchain(), jobs=1, say=say)
    builds: dict[str | None, BuiltTor] = {}
    for name, one in series.items():
        link, target = _places(inputs, one)
        built = intact_build(inputs.directory / target, f"tor-{series_name(one)}", GENCERT)
        if built is None or not link.is_symlink() or link.readlink() != target:
            return None
        builds[name] = _built_tor(link, one, built)
    return builds


def _named(tor_source: str | None) -> str | None:
    return tor_source if tor_source is not None else os.environ.get("TOR_SOURCE")


def prepare(
    root: Path,
    *,
    say: Callable[[str], None],
    tor_source: str | None = None,
    update_source: bool = False,
    jobs: int | None = None,
) -> Inputs:
    """Source and toolchain for one or more builds. The caller holds :func:`build_lock`."""
    source = obtain_source(root, _named(tor_source), update=update_source, say=say)
    return Inputs(
        root=root,
        source=source,
        toolchain=find_toolchain(),
        jobs=jobs or len(os.sched_getaffinity(0)),
        say=say,
    )


# The finished builds


def series_name(series: Series | None) -> str:
    """What a build is called on disk."""
    return STOCK if series is None else series.name


def _places(inputs: Inputs, series: Series | None) -> tuple[Path, Path]:
    """A build's link, and where that points to from beside it."""
    name = series_name(series)
    return inputs.directory / name, Path("store") / f"{name}-{build_key(inputs, series)}"


def _read(inputs: Inputs, series: Series | None) -> dict[str, Any] | None:
    store = inputs.directory / _places(inputs, series)[1]
    return read_build(inputs, store, f"tor-{series_name(series)}", GENCERT)


def _ensure_build(inputs: Inputs, series: Series | None) -> BuiltTor:
    name = series_name(series)
    link, target = _places(inputs, series)
    built = _read(inputs, series)
    if built is None:
        built = _build(inputs, series, inputs.directory / target)
    if not link.is_symlink() or link.readlink() != target:
        with work_directory(inputs) as work:
            (work / name).symlink_to(target)
            (work / name).replace(link)
    return _built_tor(link, series, built)


def _built_tor(link: Path, series: Series | None, built: Mapping[str, Any]) -> BuiltTor:
    return BuiltTor(
        series=None if series is None else series.name,
        tor=link / "bin" / f"tor-{series_name(series)}",
        sha256=built["sha256"],
        version=built["version"],
        source=built["source"],
    )


def _build(inputs: Inputs, series: Series | None, store: Path) -> dict[str, Any]:
    name = series_name(series)
    compiled = base_directory(inputs) / COMPILED
    start = compiled if compiled.is_dir() else ensure_configured(inputs)
    with patched_tree(inputs, start, series) as tree:
        if series is not None:
            compile_targets(inputs, tree, PROGRAMS, f"tor-{name}")
        return put_build(
            inputs,
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


def configure_options(*, hardened: bool) -> tuple[str, ...]:
    """What configure is told; ``hardened`` adds the sanitizers."""
    return (*CONFIGURE_OPTIONS, HARDENED_OPTION) if hardened else CONFIGURE_OPTIONS


def provenance(
    inputs: Inputs, series: Series | None, *, hardened: bool = False, cflags: str = CFLAGS
) -> dict[str, Any]:
    """Everything that decides what a build holds, as JSON."""
    return {
        "tor": inputs.source.facts,
        "series": None if series is None else series.name,
        "patches": [] if series is None else series.provenance,
        "configure": list(configure_options(hardened=hardened)),
        "cflags": cflags,
        "toolchain": inputs.toolchain.description,
    }


def build_key(
    inputs: Inputs, series: Series | None, *, hardened: bool = False, cflags: str = CFLAGS
) -> str:
    """The name of a build on disk: a hash of all that decides what it holds."""
    decisive = provenance(inputs, series, hardened=hardened, cflags=cflags)
    # The source counts by its content alone: the same tarball from elsewhere is the same source.
    decisive |= {"tor": inputs.source.sha256, "format": FORMAT}
    return build_key_of(decisive)


# The trees that builds are made in


CONFIGURED, COMPILED, WITH_TESTS = "configured", "tree", "unit-tests"


def base_directory(inputs: Inputs, *, hardened: bool = False) -> Path:
    """Where the trees that all builds start from stand."""
    kind = _kind(hardened=hardened)
    return inputs.directory / "base" / f"{kind}-{build_key(inputs, None, hardened=hardened)}"


def _kind(*, hardened: bool) -> str:
    return "hardened" if hardened else "plain"


def _title(*, hardened: bool) -> str:
    return "Tor with AddressSanitizer" if hardened else "Tor"


def ensure_configured(inputs: Inputs, *, hardened: bool = False) -> Path:
    """Tor as released, configured; returns the tree, which is not to be changed.

    Args:
        inputs: Source and toolchain.
        hardened: With AddressSanitizer and UndefinedBehaviorSanitizer.
    """
    tree = base_directory(inputs, hardened=hardened) / CONFIGURED
    if tree.is_dir():
        return tree
    what = _title(hardened=hardened)
    log = new_log(inputs, f"configure-{_kind(hardened=hardened)}")
    with work_directory(inputs) as work:
        staged = work / "tree"
        version = unpack_source(inputs.source, staged)
        inputs.say(f"{what} {version}: building the base that all variants start from")
        # The source comes with another machine's automake; ours must be able to continue the
        # work when a patch adds files.
        run_logged(inputs, ["autoreconf", "-i"], staged, log, f"{what}: autoreconf")
        compiler = f"CC={inputs.toolchain.compiler}"
        configure = [
            "./configure",
            *configure_options(hardened=hardened),
            compiler,
            f"CFLAGS={CFLAGS}",
            *AUTOTOOLS,
        ]
        run_logged(inputs, configure, staged, log, f"{what}: configure")
        tree.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(tree)
    return tree


def ensure_base(inputs: Inputs, *, hardened: bool = False) -> Path:
    """Tor as released, configured and compiled; returns the tree, which is not to be changed.

    Args:
        inputs: Source and toolchain.
        hardened: With AddressSanitizer and UndefinedBehaviorSanitizer.
    """
    tree = base_directory(inputs, hardened=hardened) / COMPILED
    if tree.is_dir():
        return tree
    configured = ensure_configured(inputs, hardened=hardened)
    log = new_log(inputs, f"base-{_kind(hardened=hardened)}")
    with patched_tree(inputs, configured, None) as staged:
        compile_targets(inputs, staged, PROGRAMS, _title(hardened=hardened), log)
        staged.rename(tree)
    return tree


def ensure_unit_tests(inputs: Inputs, series: Series | None, *, hardened: bool, what: str) -> Path:
    """Tor's unit tests, compiled for the quick check; returns the program.

    They are compiled without optimization, in a third of the time, and once for Tor as released:
    a series compiles what its patches touch.
    """
    base = base_directory(inputs, hardened=hardened) / WITH_TESTS
    if not base.is_dir():
        # Of a tree that is not compiled yet, Tor's rules cannot make the unit tests alone: they do
        # not say that these need micro-revision.i.
        compiled = ensure_base(inputs, hardened=hardened)
        with patched_tree(inputs, compiled, None) as staged:
            _compile_unit_tests(inputs, staged, f"unit tests of {_title(hardened=hardened)}")
            staged.rename(base)
    if series is None:
        return base / UNIT_TESTS
    key = build_key(inputs, series, hardened=hardened, cflags=QUICK_CFLAGS)
    kept = inputs.directory / "unit-tests" / f"{series.name}-{key}" / "test"
    if not kept.is_file():
        with patched_tree(inputs, base, series) as tree:
            _compile_unit_tests(inputs, tree, f"unit tests of {what}")
            kept.parent.mkdir(parents=True, exist_ok=True)
            (tree / UNIT_TESTS).rename(kept)
    return kept


def _compile_unit_tests(inputs: Inputs, tree: Path, what: str) -> None:
    compile_targets(inputs, tree, [UNIT_TESTS], what, cflags=QUICK_CFLAGS)


def patched_tree(
    inputs: Inputs, base: Path, series: Series | None
) -> contextlib.AbstractContextManager[Path]:
    """A copy of ``base`` with the patches of ``series`` applied; gone afterwards."""
    own = [] if series is None else [series]
    return patched_copy(inputs, base, own, inputs.source.path.name, PATCHES_HINT)


def compile_targets(
    inputs: Inputs,
    tree: Path,
    targets: Sequence[str],
    what: str,
    log: Path | None = None,
    *,
    cflags: str = CFLAGS,
) -> Path:
    """Run make for ``targets`` in ``tree``; returns the log.

    Raises:
        UserError: It failed; with the end of the output and the place of the whole.
    """
    if log is None:
        log = new_log(inputs, what)
    command = [*make_command(inputs, tree, cflags=cflags), *targets]
    run_logged(inputs, command, tree, log, f"{what}: compile")
    return log


def make_command(inputs: Inputs, tree: Path, *, cflags: str = CFLAGS) -> list[str]:
    """How make is called in ``tree``, without a target.

    The tree's own path would otherwise stand in the debugging information. configure's flags are
    given again because the command line replaces them.
    """
    return ["make", f"-j{inputs.jobs}", f"CFLAGS={cflags} -ffile-prefix-map={tree}=."]


def find_toolchain() -> Toolchain:
    """The compiler (variable CC, else gcc) and the versions that decide what it makes.

    Raises:
        UserError: There is no compiler.
    """
    compiler = os.environ.get("CC") or "gcc"
    description = {
        "compiler": first_line(compiler, "--version"),
        "machine": first_line(compiler, "-dumpmachine"),
        "linker": first_line("ld", "--version"),
    }
    if not description["compiler"]:
        raise UserError(f"there is no C compiler `{compiler}`", "`make setup` installs gcc.")
    for library in LIBRARIES:
        description[library] = first_line("pkg-config", "--modversion", library)
    return Toolchain(compiler, description)
