"""Fixtures for tests of the embedded engine.

``linux_tarball`` replaces Linux's source. Its build takes a second and only writes a shell script.
``uml_engine`` is the engine with its real kernel.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from onionlab.engines.uml.engine import UmlEngine
from onionlab.engines.uml.kernel import BuiltKernel
from onionlab.errors import UserError
from onionlab.programs.installed import TGEN, find_tool

# This makefile builds a script `linux` that passes the boot check. Like a real kernel, the script
# depends on the configuration and on a source file, file.c.
MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = 99

RUSTC = rustc
PAHOLE = pahole
BINDGEN = bindgen

allnoconfig:
\t@{ echo "# a comment"; grep -v CONFIG_NOT_IN_THIS_VERSION $(KCONFIG_ALLCONFIG); } > .config
\t@for tool in $(RUSTC) $(PAHOLE) $(BINDGEN); do \\
\t  echo "CONFIG_TOOL_VERSION=\"$$($$tool --version 2>/dev/null)\""; done >> .config
\t@echo "configured by $(KBUILD_BUILD_USER)"

linux:
\t@grep -q good file.c || { echo "file.c:1: error: not good"; exit 1; }
\t@{ cat kernel.sh; cat .config file.c | sed 's/^/# /'; } > linux
\t@chmod +x linux
"""

KERNEL = """\
#!/bin/sh
echo "Linux version 6.12.99"
echo 'onionlab-boot-check {"started": 946684800.5, "slept": 1000.0, "version": "Linux"}'
"""

FILES = {
    "Makefile": MAKEFILE,
    "arch/um/Kconfig": "",
    "arch/arm/Kconfig": "",
    "arch/arm/unneeded.c": "",
    "drivers/gpu/unneeded.c": "",
    "drivers/gpu/Kconfig": "",
    "file.c": "good\none\ntwo\nthree\n",
    "kernel.sh": KERNEL,
}

FRAGMENT = """\
# What is on
CONFIG_NET=y
CONFIG_NEWER=y # since 6.16
CONFIG_OLDER=y # until 6.11
"""

PATCH = """\
Change two.

--- a/file.c
+++ b/file.c
@@ -1,4 +1,4 @@
 good
 one
-two
+2
 three
"""


def tarball_of(files: dict[str, str], path: Path, mode: str = "w:xz") -> Path:
    """Write a tarball like that of a release, with a single top-level folder. Return its path."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, text in files.items():
            member = tarfile.TarInfo(f"linux-source-6.12/{name}")
            member.size = len(text.encode())
            member.mode = 0o755 if name.endswith(".sh") else 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def linux_tarball(tmp_path: Path) -> Path:
    return tarball_of(FILES, tmp_path / "linux-source-6.12.tar.xz")


def write_checkout(root: Path, patches: dict[str, str] | None = None) -> Path:
    patch_folder = root / "configs/uml/patches"
    patch_folder.mkdir(parents=True)
    (root / "configs/uml/kernel.config").write_text(FRAGMENT)
    (root / "configs/uml/calls.c").write_text("int calls;\n")
    for name, text in ({"0001-two.patch": PATCH} if patches is None else patches).items():
        (patch_folder / name).write_text(text)
    return root


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return write_checkout(tmp_path / "checkout")


@pytest.fixture(scope="session")
def uml_engine(uml_kernel: BuiltKernel) -> UmlEngine:
    """Return the engine with its kernel."""
    return UmlEngine(uml_kernel)


@pytest.fixture(scope="session")
def tgen() -> Path:
    """Return the path of TGen. Skip the test if TGen is missing."""
    try:
        return find_tool(TGEN).path
    except UserError as error:
        pytest.skip(f"needs TGen: {error.message}")
