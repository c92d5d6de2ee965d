"""Generate the kernel's configuration from configs/uml/kernel.config with Kconfig."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from onionlab.engines.uml.kernel_source import linux_version
from onionlab.errors import UserError
from onionlab.programs.building import BuildContext, run_logged
from onionlab.programs.compiler_cache import through_cache

# By default Linux stores the time, host and user of its build in the kernel.
FIXED_IDENTITY = (
    "KBUILD_BUILD_TIMESTAMP=2000-01-01",
    "KBUILD_BUILD_USER=onionlab",
    "KBUILD_BUILD_HOST=onionlab",
    "KBUILD_BUILD_VERSION=1",
    "LOCALVERSION=",
)

# If a machine has these tools, Kconfig records their versions although the build does not use them.
# The executable contains the whole configuration.
UNUSED_TOOLS = ("RUSTC=false", "BINDGEN=false", "PAHOLE=false")


def make_command(tree: Path) -> list[str]:
    """Return the command line of make in ``tree``, without a target."""
    # Without the prefix map, the tree's path could get into a kernel through __FILE__. -w disables
    # warnings, which are meant for Linux's developers.
    flags = f"KCFLAGS=-ffile-prefix-map={tree}=. -w"
    compiler = f"CC={through_cache('gcc')}"
    return ["make", "-s", "ARCH=um", compiler, *FIXED_IDENTITY, *UNUSED_TOOLS, flags]


def configure(context: BuildContext, fragment: Path, tree: Path, log: Path) -> str:
    """Generate ``.config`` in ``tree`` from the fragment. Return the SHA-256 of its settings.

    Raises:
        UserError: Kconfig does not accept an option of the fragment.
    """
    release = tuple(int(part) for part in linux_version(tree, tree).split(".")[:2])
    wanted = list(fragment_options(fragment.read_text(encoding="utf-8"), release))
    asked = tree.parent / "asked.config"
    asked.write_text("".join(line + "\n" for line in wanted), encoding="utf-8")
    command = [*make_command(tree), f"KCONFIG_ALLCONFIG={asked}", "allnoconfig"]
    run_logged(context, command, tree, log, "the kernel: configure")
    content = (tree / ".config").read_text(encoding="utf-8")
    missing = missing_options(wanted, content)
    if missing:
        raise UserError(
            f"Linux {'.'.join(str(part) for part in release)} does not accept these options of "
            f"{fragment.name}: {', '.join(missing)}",
            "Their names or what they depend on have changed: look them up in the Kconfig files "
            "of this version, or use another source with LINUX_SOURCE=.",
        )
    # The file's header contains the compiler, which is already part of the key.
    settings = "".join(line + "\n" for line in content.splitlines() if "CONFIG_" in line)
    return hashlib.sha256(settings.encode()).hexdigest()


def fragment_options(fragment: str, release: tuple[int, ...]) -> Iterator[str]:
    """Yield the lines of a fragment that apply to a release such as ``(6, 12)``.

    A line may end with ``# since 6.16`` (that release and newer) or ``# until 6.15`` (up to that
    one).
    """
    for line in fragment.splitlines():
        option, _, remark = line.partition("#")
        if not option.strip():
            continue
        bound = re.fullmatch(r"\s*(since|until) (\d+)\.(\d+)\s*", remark)
        if bound is not None:
            limit = (int(bound[2]), int(bound[3]))
            if (release < limit) if bound[1] == "since" else (release > limit):
                continue
        yield option.strip()


def missing_options(wanted: Sequence[str], config: str) -> list[str]:
    """Return wanted lines that ``config`` lacks. ``CONFIG_X=n`` means that the option is absent."""
    present = set(config.splitlines())
    names = {line.partition("=")[0] for line in present}
    return [
        line
        for line in wanted
        if (line.removesuffix("=n") in names if line.endswith("=n") else line not in present)
    ]
