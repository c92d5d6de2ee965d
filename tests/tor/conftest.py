"""A small source with Tor's build system, make targets and tests, which builds in a few seconds."""

from __future__ import annotations

import difflib
import shutil
import subprocess
from pathlib import Path

import pytest

from onionlab.programs.tor.build import ensure_series

FILES = {
    "configure.ac": """\
AC_INIT([tor],[0.4.9.99])
AC_CONFIG_SRCDIR([src/app/main.c])
AM_INIT_AUTOMAKE([foreign subdir-objects])
AC_PROG_CC
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
""",
    "Makefile.am": """\
noinst_PROGRAMS = src/app/tor src/tools/tor-gencert src/test/test
src_app_tor_SOURCES = src/app/main.c
src_tools_tor_gencert_SOURCES = src/tools/gencert.c
src_test_test_SOURCES = src/test/test.c
TESTS = src/test/test src/test/test_script.sh src/test/unittest_part2.sh
TESTS_ENVIRONMENT = export abs_top_builddir="$(abs_top_builddir)";
EXTRA_DIST = src/test/test_script.sh
check-spaces check-includes:
\t@test ! -e src/bad-style
# Releases of Tor lack a program that this target runs, so it fails there. It fails here, too.
check-local:
\t@false
""",
    "src/app/main.c": """\
#include <stdio.h>
#include <string.h>

const char *greeting = "hello";

int
main(int argc, char **argv)
{
  if (argc > 1 && !strcmp(argv[1], "--version"))
    printf("Tor version 0.4.9.99.\\n");
  else
    printf("%s\\n", greeting);
  return 0;
}
""",
    "src/tools/gencert.c": "int\nmain(void)\n{\n  return 0;\n}\n",
    "src/test/test.c": """\
#include <stdio.h>
#include <string.h>

int
main(int argc, char **argv)
{
  if (argc > 1 && strcmp(argv[1], "circuitmux..")) {
    printf("No such test as %s!\\n", argv[1]);
    return 1;
  }
  printf("circuitmux/basic: OK\\n");
  printf("circuitmux/forked: [forking] OK\\n");
  printf("util/no_network: SKIPPED\\n");
  return 0;
}
""",
    # Like Tor's own test scripts, this script uses a path from a variable that make exports.
    "src/test/test_script.sh": '#!/bin/sh\nexec "$abs_top_builddir/src/app/tor" --version\n',
    # The unit tests run in parts, and each part reports the cases of the other parts as skipped.
    "src/test/unittest_part2.sh": """\
#!/bin/sh
echo "circuitmux/basic: SKIPPED"
echo "util/part_two: OK"
""",
}

VARIANTS = """\
series:
  greeting:
    description: another greeting
    proof_prefix: "In use: "
    proof_from: every-relay
variants:
  stock:
    description: as released
    label: stock
    color: "#000000"
    marker: o
    linestyle: "-"
    series: null
    torrc: {}
    proof: null
  morning:
    description: patched
    label: morning
    color: "#4477AA"
    marker: s
    linestyle: "--"
    series: greeting
    torrc:
      Greeting: morning
    proof: "In use: morning."
"""


def diff(name: str, old: str, new: str) -> str:
    """Return a patch of one file. If ``old`` is empty, the patch creates the file."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    return "".join(
        difflib.unified_diff(before, after, f"a/{name}" if old else "/dev/null", f"b/{name}")
    )


MAIN = FILES["src/app/main.c"]
CHANGED_MAIN = MAIN.replace('"hello"', '"good morning"')

CHANGE_GREETING = "Say good morning.\n\n" + diff("src/app/main.c", MAIN, CHANGED_MAIN)

# This patch applies after CHANGE_GREETING. It adds a file, so automake has to run.
ADD_FILE = (
    diff(
        "Makefile.am",
        FILES["Makefile.am"],
        FILES["Makefile.am"].replace("src/app/main.c", "src/app/main.c src/app/greeting.c"),
    )
    + diff(
        "src/app/main.c",
        CHANGED_MAIN,
        CHANGED_MAIN.replace(
            'const char *greeting = "good morning"', "extern const char *greeting"
        ),
    )
    + diff("src/app/greeting.c", "", 'const char *greeting = "good day";\n')
)


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)


def pack(tree: Path, tarball: Path) -> Path:
    subprocess.run(["tar", "-czf", tarball, "-C", tree.parent, tree.name], check=True)
    return tarball


@pytest.fixture(scope="session")
def tiny_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("source") / "tor-0.4.9.99"
    write_files(tree, FILES)
    return tree


@pytest.fixture(scope="session")
def tiny_tarball(tiny_tree: Path) -> Path:
    return pack(tiny_tree, tiny_tree.parent / "tor-0.4.9.99.tar.gz")


@pytest.fixture
def tor_source(tiny_tarball: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let builds use the small source if they name no other source."""
    monkeypatch.setenv("TOR_SOURCE", str(tiny_tarball))


def write_checkout(root: Path) -> Path:
    write_files(
        root / "tor-patches",
        {"variants.yaml": VARIANTS, "greeting/0001-greeting.patch": CHANGE_GREETING},
    )
    return root


@pytest.fixture(scope="session")
def built_checkout(tmp_path_factory: pytest.TempPathFactory, tiny_tarball: Path) -> Path:
    """Return a checkout in which stock Tor and the patch series `greeting` are built.

    Tests that change the checkout have to use ``checkout``, which is a copy of it.
    """
    root = write_checkout(tmp_path_factory.mktemp("built"))
    ensure_series(root, [None, "greeting"], tor_source=str(tiny_tarball))
    return root


@pytest.fixture
def checkout(built_checkout: Path, tmp_path: Path) -> Path:
    """Return a copy of ``built_checkout``, which the test may change."""
    root = tmp_path / "checkout"
    shutil.copytree(built_checkout, root, symlinks=True)
    return root


@pytest.fixture
def new_checkout(tmp_path: Path) -> Path:
    """Return a checkout in which nothing is built."""
    return write_checkout(tmp_path / "new")
