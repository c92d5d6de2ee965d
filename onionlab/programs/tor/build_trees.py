"""The trees that Tor is built in, and what decides what comes out of them.

One base tree for a source, configured and then compiled, and each patch series as a step from a
copy of it. build.py says where they stand.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.durable import put_in_place
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    build_key_of,
    building_directory,
    first_line,
    new_log,
    patched_copy,
    run_logged,
)
from onionlab.programs.compiler_cache import through_cache
from onionlab.programs.patches import Series
from onionlab.programs.sources import Source
from onionlab.programs.tor.source import obtain_source, unpack_source

FORMAT = 1
"""Part of every key: raise it when a build is made differently."""

PROGRAMS = ("src/app/tor", "src/tools/tor-gencert")
UNIT_TESTS = "src/test/test"

# The same choices on every machine, whatever happens to be installed: what a relay can do must not
# depend on who built it. Compression other than zlib, seccomp and systemd are of no use in a
# simulated network; documentation takes time.
CONFIGURE_OPTIONS = (
    "--prefix=/usr/local",
    # A relay reads GeoIP files below this folder. The files of an installed Tor would change its
    # memory, and with it the simulation.
    "--datadir=/nonexistent",
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
CFLAGS = "-O2"
"""Tor's own without debugging information: the same code, compiled in less time. Profiles name
functions all the same."""
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


def named_source(tor_source: str | None) -> str | None:
    """The user's own source: as the argument says, else the variable TOR_SOURCE."""
    return tor_source if tor_source is not None else os.environ.get("TOR_SOURCE")


def prepare(
    root: Path,
    *,
    say: Callable[[str], None],
    tor_source: str | None = None,
    update_source: bool = False,
    jobs: int | None = None,
) -> Inputs:
    """Source and toolchain for one or more builds. The caller holds the lock of Tor's builds."""
    source = obtain_source(root, named_source(tor_source), update=update_source, say=say)
    return Inputs(
        root=root,
        source=source,
        toolchain=find_toolchain(),
        jobs=jobs or len(os.sched_getaffinity(0)),
        say=say,
    )


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
    with building_directory(inputs) as work:
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
        # All files include it: those of every checkout are to be the same to ccache.
        settle(staged, ".")
        tree.parent.mkdir(parents=True, exist_ok=True)
        put_in_place(staged, tree)
    return tree


def require_fit(inputs: Inputs, wanted: Iterable[Series], *, hardened: bool = False) -> None:
    """Apply each series to a copy of the configured tree, before anything is compiled.

    Raises:
        UserError: A patch does not apply.
    """
    configured = ensure_configured(inputs, hardened=hardened)
    for series in wanted:
        with patched_tree(inputs, configured, series):
            pass


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
        put_in_place(staged, tree)
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
            put_in_place(staged, base)
    if series is None:
        return base / UNIT_TESTS
    key = build_key(inputs, series, hardened=hardened, cflags=QUICK_CFLAGS)
    kept = inputs.directory / "unit-tests" / f"{series.name}-{key}" / "test"
    if not kept.is_file():
        with patched_tree(inputs, base, series) as tree:
            _compile_unit_tests(inputs, tree, f"unit tests of {what}")
            kept.parent.mkdir(parents=True, exist_ok=True)
            put_in_place(tree / UNIT_TESTS, kept)
    return kept


def _compile_unit_tests(inputs: Inputs, tree: Path, what: str) -> None:
    compile_targets(inputs, tree, [UNIT_TESTS], what, cflags=QUICK_CFLAGS)


def settle(tree: Path, path: str) -> None:
    """Write ``path`` where the tree's own is compiled in: one header, by which tests find a file.

    The header's time stamp stays, or everything would be compiled again for it. Only unit tests
    read the path.
    """
    header = tree / "orconfig.h"
    if not header.is_file():
        return
    before = header.stat()
    text = header.read_text("utf-8")
    settled = re.sub(
        r'^#define (BUILDDIR|SRCDIR) ".*"$', rf'#define \1 "{path}"', text, flags=re.MULTILINE
    )
    header.write_text(settled, encoding="utf-8")
    os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))


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

    The tree's own path would otherwise stand in what is compiled. configure's flags are given again
    because the command line replaces them.
    """
    compiler = through_cache(inputs.toolchain.compiler)
    return [
        "make",
        f"-j{inputs.jobs}",
        f"CC={compiler}",
        f"CFLAGS={cflags} -ffile-prefix-map={tree}=.",
    ]


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
