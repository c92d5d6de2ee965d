"""The trees that Tor is built in, and the inputs that determine the result.

One base tree per source is configured and then compiled. Each patch series is applied to a copy of
it. build.py describes the directory layout.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.durable import put_in_place, write_whole
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    building_directory,
    file_sha256,
    first_line,
    hash_inputs,
    new_log,
    patched_copy,
    run_logged,
)
from onionlab.programs.compiler_cache import through_cache
from onionlab.programs.patches import Series
from onionlab.programs.sources import Source, unpack_source
from onionlab.programs.tor.tor_source import TOR, TorSource, obtain_tor_source

LOG = logging.getLogger(__name__)
FORMAT = 1
"""A part of every `build_key`. Increase it when the build procedure changes."""

PROGRAMS = ("src/app/tor", "src/tools/tor-gencert")
UNIT_TESTS = "src/test/test"
CONFIGURED, COMPILED, WITH_TESTS = "configured", "tree", "unit-tests"
"""Names of the three base trees of a source: Tor configured, also compiled, and also with compiled
unit tests."""

# The choices are the same on every machine, independent of installed libraries, because a relay's
# features must not depend on who built it. A simulated network needs no compression other than
# zlib, no seccomp and no systemd; building documentation takes time.
CONFIGURE_OPTIONS = (
    "--prefix=/usr/local",
    # A relay reads GeoIP files below this folder. The files of an installed Tor would change the
    # relay's memory use, and thereby the simulation.
    "--datadir=/nonexistent",
    "--disable-asciidoc",
    "--disable-html-manual",
    "--disable-manpage",
    "--disable-lzma",
    "--disable-zstd",
    "--disable-seccomp",
    "--disable-systemd",
    "--disable-libscrypt",
    # configure has no option to disable libcap, which Tor needs only to bind low ports after it has
    # changed its user (option User). These cached results make configure treat libcap as missing.
    "ac_cv_lib_cap_cap_init=no",
    "ac_cv_header_sys_capability_h=no",
)
HARDENED_OPTION = "--enable-fragile-hardening"
"""Tor's option for AddressSanitizer and UndefinedBehaviorSanitizer."""
# Without these arguments, configure would set the variables to the absolute path of its helper
# `missing`, and a copied tree would run the helper of the original tree.
AUTOTOOLS = ("ACLOCAL=aclocal", "AUTOCONF=autoconf", "AUTOHEADER=autoheader", "AUTOMAKE=automake")
CFLAGS = "-O2"
"""Tor's own flags without debugging information: the same code in less compile time. Profiles still
show function names."""
QUICK_CFLAGS = "-O0"
"""The flags for unit tests that have to compile quickly."""

TREE_MARK = "@THE_TREE@"
"""Replaces the path of the tree in a stored config.status."""

PATCHES_HINT = (
    "tor-patches/README.md lists the versions of Tor that each series applies to. For another "
    "version, update the series or use another source: the variant's `source`, or "
    "TOR_SOURCE=/path/to/tor-0.4.9.x.tar.gz."
)
LIBRARIES = ("libevent", "openssl", "zlib")


@dataclass(frozen=True)
class Toolchain:
    """The compiler and the libraries that affect a build's result."""

    compiler: str
    description: dict[str, str]


@dataclass(frozen=True)
class Inputs:
    """The inputs that all builds from one source have in common.

    hardened: whether AddressSanitizer and UndefinedBehaviorSanitizer are enabled.
    """

    root: Path
    source: Source
    toolchain: Toolchain
    jobs: int = 1
    hardened: bool = False

    @property
    def directory(self) -> Path:
        """The folder of Tor's sources and builds: ``build/tor``."""
        return tor_directory(self.root)

    @property
    def title(self) -> str:
        """The name, in messages, of Tor without patches."""
        return "Tor with AddressSanitizer" if self.hardened else "Tor"

    @property
    def kind(self) -> str:
        """The kind of build, plain or hardened, for names of files."""
        return "hardened" if self.hardened else "plain"

    @property
    def base(self) -> Path:
        """The directory of the trees that all builds start from."""
        return self.directory / "base" / f"{self.kind}-{build_key(self, None)}"

    @property
    def configure_options(self) -> list[str]:
        """The options for Tor's configure script."""
        return [*CONFIGURE_OPTIONS, *([HARDENED_OPTION] if self.hardened else [])]


def tor_directory(root: Path) -> Path:
    """Return the folder of Tor's source and builds."""
    return build_directory(root) / "tor"


def prepare(
    root: Path,
    source: TorSource | None = None,
    *,
    tor_source: str | None = None,
    update_source: bool = False,
    jobs: int | None = None,
) -> Inputs:
    """Find source and toolchain for builds. The caller has to hold the lock of Tor's builds.

    source: the source of a variant. By default it is ``tor_source``, or else the source that the
    variable TOR_SOURCE names, or else Debian's source package.
    """
    found = obtain_tor_source(tor_directory(root), source, tor_source, update=update_source)
    return Inputs(root, found, find_toolchain(), jobs or len(os.sched_getaffinity(0)))


def provenance(inputs: Inputs, series: Series | None, cflags: str = CFLAGS) -> dict[str, Any]:
    """Return everything that determines a build's content, as JSON."""
    return {
        "tor": inputs.source.facts,
        "series": None if series is None else series.name,
        "patches": [] if series is None else series.provenance,
        "configure": inputs.configure_options,
        "cflags": cflags,
        "toolchain": inputs.toolchain.description,
    }


def build_key(inputs: Inputs, series: Series | None, cflags: str = CFLAGS) -> str:
    """Return the name of a build on disk: a hash of everything that determines its content."""
    # The hash of the source replaces the facts about the source, such as its file's name, because
    # the same content from another place results in the same build.
    decisive = {"tor": inputs.source.sha256, "format": FORMAT}
    return hash_inputs(provenance(inputs, series, cflags) | decisive)


def ensure_configured(inputs: Inputs) -> Path:
    """Configure Tor as released. Return the tree, which must not be modified."""
    tree = inputs.base / CONFIGURED
    if tree.is_dir():
        return tree
    log = new_log(inputs.directory, f"configure-{inputs.kind}")
    with building_directory(inputs.directory) as work:
        staged = work / "tree"
        version = unpack_source(TOR, inputs.source, staged)
        LOG.info("%s %s: building %s", inputs.title, version, inputs.source.title)
        configure(inputs, staged, log, inputs.title)
        # Every source file includes orconfig.h, so normalise the paths in this header to let ccache
        # share objects between checkouts.
        rewrite_embedded_paths(staged, ".")
        tree.parent.mkdir(parents=True, exist_ok=True)
        put_in_place(staged, tree)
    return tree


def configure(inputs: Inputs, tree: Path, log: Path, what: str, *options: str) -> None:
    """Configure a source tree. ``what``: the tree's name in messages."""
    # The source contains files of another machine's automake. Regenerate them so that the installed
    # automake can continue when a patch adds files.
    run_logged(["autoreconf", "-i"], tree, log, f"{what}: autoreconf")
    command = ["./configure", *inputs.configure_options, *options]
    command += [f"CC={inputs.toolchain.compiler}", f"CFLAGS={CFLAGS}", *AUTOTOOLS]
    # Most commits leave the generated configure unchanged, and configure takes as long as the
    # compilation. config.status contains its results, so keep it for the next tree. A cache file of
    # configure is not enough: Tor's checks of compiler flags depend on more than this file records.
    script = file_sha256(tree / "configure")
    decisive = {"script": script, "command": command, "toolchain": inputs.toolchain.description}
    kept = inputs.directory / "config-status" / hash_inputs(decisive)
    status = tree / "config.status"
    if kept.is_file():
        status.write_text(kept.read_text("utf-8").replace(TREE_MARK, str(tree)), encoding="utf-8")
        run_logged(["sh", status.name], tree, log, f"{what}: configure")
        return
    run_logged(command, tree, log, f"{what}: configure")
    write_whole(kept, status.read_text("utf-8").replace(str(tree), TREE_MARK))


def check_patches_apply(inputs: Inputs, wanted: Iterable[Series]) -> None:
    """Raise UserError if a series does not apply to the configured tree."""
    configured = ensure_configured(inputs)
    for series in wanted:
        with patched_tree(inputs, configured, series):
            pass


def ensure_base(inputs: Inputs) -> Path:
    """Configure and compile Tor as released. Return the tree, which must not be modified."""
    tree = inputs.base / COMPILED
    if tree.is_dir():
        return tree
    configured = ensure_configured(inputs)
    log = new_log(inputs.directory, f"base-{inputs.kind}")
    with patched_tree(inputs, configured, None) as staged:
        compile_targets(inputs, staged, PROGRAMS, inputs.title, log)
        put_in_place(staged, tree)
    return tree


def ensure_unit_tests(inputs: Inputs, series: Series | None, what: str) -> Path:
    """Compile Tor's unit tests for the quick check, which runs no other tests. Return the program.

    Without optimisation, the compilation takes a third of the time. For Tor as released, all files
    are compiled. For a series, only the files that its patches affect are recompiled.
    """
    base = inputs.base / WITH_TESTS
    if not base.is_dir():
        # Start from the compiled tree. In a tree that was only configured, make cannot build the
        # unit tests alone, because Tor's makefile lacks their dependency on micro-revision.i.
        compiled = ensure_base(inputs)
        with patched_tree(inputs, compiled, None) as staged:
            _compile_unit_tests(inputs, staged, inputs.title)
            put_in_place(staged, base)
    if series is None:
        return base / UNIT_TESTS
    name = f"{series.name}-{build_key(inputs, series, QUICK_CFLAGS)}"
    kept = inputs.directory / "unit-tests" / name / "test"
    if not kept.is_file():
        with patched_tree(inputs, base, series) as tree:
            _compile_unit_tests(inputs, tree, what)
            kept.parent.mkdir(parents=True, exist_ok=True)
            put_in_place(tree / UNIT_TESTS, kept)
    return kept


def _compile_unit_tests(inputs: Inputs, tree: Path, what: str) -> None:
    compile_targets(inputs, tree, [UNIT_TESTS], f"unit tests of {what}", cflags=QUICK_CFLAGS)


def rewrite_embedded_paths(tree: Path, path: str) -> None:
    """Replace the tree's own path, which is compiled in through a header, with ``path``.

    The header keeps its time stamp; otherwise everything would be recompiled. Only unit tests use
    the path.
    """
    header = tree / "orconfig.h"
    if not header.is_file():
        return
    before = header.stat()
    paths = re.compile(r'^#define (BUILDDIR|SRCDIR) ".*"$', re.MULTILINE)
    rewritten = paths.sub(rf'#define \1 "{path}"', header.read_text("utf-8"))
    header.write_text(rewritten, encoding="utf-8")
    os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))


def patched_tree(
    inputs: Inputs, base: Path, series: Series | None
) -> contextlib.AbstractContextManager[Path]:
    """Copy ``base``, apply the patches of ``series``, yield the copy and remove it afterwards."""
    own = [] if series is None else [series]
    return patched_copy(inputs.directory, base, own, inputs.source.title, PATCHES_HINT)


def compile_targets(
    inputs: Inputs,
    tree: Path,
    targets: Sequence[str],
    what: str,
    log: Path | None = None,
    *,
    cflags: str = CFLAGS,
) -> None:
    """Run make for ``targets`` in ``tree``.

    If make fails, raises UserError with the end of its output and the path of the log.
    """
    command = [*make_command(inputs, tree, cflags), *targets]
    run_logged(command, tree, log or new_log(inputs.directory, what), f"{what}: compile")


def make_command(inputs: Inputs, tree: Path, cflags: str = CFLAGS) -> list[str]:
    """Return the make command for ``tree``, without a target.

    -ffile-prefix-map keeps the tree's path out of the objects. CFLAGS on make's command
    line replaces the CFLAGS that configure got, so the command line repeats ``cflags``.
    """
    compiler = f"CC={through_cache(inputs.toolchain.compiler)}"
    return ["make", f"-j{inputs.jobs}", compiler, f"CFLAGS={cflags} -ffile-prefix-map={tree}=."]


def find_toolchain() -> Toolchain:
    """Find the compiler (variable CC, else gcc) and the versions that affect its results.

    Raises UserError if the compiler is missing.
    """
    compiler = os.environ.get("CC") or "gcc"
    description = {
        "compiler": first_line(compiler, "--version"),
        "machine": first_line(compiler, "-dumpmachine"),
        "linker": first_line("ld", "--version"),
    }
    if not description["compiler"]:
        raise UserError(f"C compiler `{compiler}` not found", "`make setup` installs gcc.")
    for library in LIBRARIES:
        description[library] = first_line("pkg-config", "--modversion", library)
    return Toolchain(compiler, description)
