"""Obtain Linux's source: the distribution's ``linux-source-VERSION`` package, or the user's own.

apt fetches the package (:mod:`onionlab.programs.apt`), which contains one tarball.
"""

from __future__ import annotations

import fnmatch
import logging
import re
import subprocess
from pathlib import Path
from typing import Any

from analysis.formats.scratch import scratch_folder
from onionlab.errors import UserError
from onionlab.programs.apt import PrivateApt, store_fetched
from onionlab.programs.building import file_sha256
from onionlab.programs.sources import Program, Source, obtain_source, read_if_present

LOG = logging.getLogger(__name__)
ENVIRONMENT_VARIABLE = "LINUX_SOURCE"
SOURCE_HINT = (
    "To build from your own source, specify a tarball or an unpacked tree: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/linux-6.12.tar.xz (releases: https://www.kernel.org/)."
)

OLDEST = (6, 8)
"""The oldest version of Linux to which the patches apply."""

TESTED = (6, 12)
"""The newest version with which the engine was tested."""

# Files that are not unpacked, because no kernel for User-Mode Linux needs them. Most of the tree
# consists of such files. Files named Kconfig are unpacked, because Kconfig reads all of them. In
# these patterns of fnmatch, `*` also matches `/`.
UNNEEDED = (
    "Documentation/*/*",
    *(f"include/{name}/*" for name in ("drm", "media", "soc", "sound")),
    "samples/*.[ch]",
    "sound/*.[ch]",
    *(
        f"arch/{name}/{pattern}"
        for name in (
            *("alpha", "arc", "arm", "arm64", "csky", "hexagon", "ia64", "loongarch", "m68k"),
            *("microblaze", "mips", "nios2", "openrisc", "parisc", "powerpc", "riscv", "s390"),
            *("sh", "sparc", "xtensa"),
        )
        for pattern in ("*.[chS]", "boot/*", "configs/*")
    ),
    *(
        f"drivers/{name}/*.[ch]"
        for name in (
            *("accel", "acpi", "ata", "bluetooth", "clk", "comedi", "cpufreq", "crypto", "dma"),
            *("edac", "firmware", "gpio", "gpu", "hid", "hwmon", "hwtracing", "i2c", "iio"),
            *("infiniband", "input", "interconnect", "iommu", "irqchip", "isdn", "leds", "md"),
            *("media", "mfd", "misc", "mmc", "mtd", "nfc", "pci", "phy", "pinctrl", "platform"),
            *("pmdomain", "power", "pwm", "regulator", "rtc", "s390", "scsi", "soc", "spi"),
            *("staging", "target", "thermal", "usb", "vfio", "video", "watchdog", "xen"),
            *("net/can", "net/ethernet", "net/phy", "net/usb", "net/wireless", "net/dsa"),
        )
    ),
    *(f"fs/{name}/*.[ch]" for name in ("bcachefs", "btrfs", "ext4", "f2fs", "ocfs2", "smb", "xfs")),
    *(f"tools/{name}/*" for name in ("bpf", "net", "perf", "power", "testing", "usb", "virtio")),
)


def obtain_linux(directory: Path) -> Source:
    """Return Linux's source; fetch it to ``directory`` first if necessary.

    The source is the tarball or the tree that LINUX_SOURCE specifies, or by default the
    distribution's package (see `choose_package`). A fetched package is kept, so that a later build
    results in the same kernel. Raises UserError if there is no suitable source.
    """
    return obtain_source(LINUX, directory / "source", fetch=_fetch_package)


def linux_version(tree: Path, origin: Path) -> str:
    """Return Linux's version according to the Makefile in ``tree``.

    Raises UserError if ``origin``, the source of the tree, is not Linux's source.
    """
    text = read_if_present(tree / "Makefile")
    numbers = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", text, re.MULTILINE))
    if len(numbers) < 3 or not (tree / "arch/um").is_dir():
        raise UserError(
            f"{origin} is not Linux's source: no Makefile that names its version, or no arch/um",
            SOURCE_HINT,
        )
    return ".".join(numbers[name] for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))


_UNNEEDED = re.compile("|".join(fnmatch.translate(one) for one in UNNEEDED))
LINUX = Program(
    name="Linux",
    variable=ENVIRONMENT_VARIABLE,
    hint=SOURCE_HINT,
    version=linux_version,
    configured=(".config", "make mrproper"),
    is_needed=lambda name: not _UNNEEDED.match(name.as_posix()),
)


# The distribution's package


LIST_PACKAGES = ("pkgnames", "linux-source-")
"""The arguments with which apt-cache prints the names that `choose_package` gets."""
_PACKAGE = re.compile(r"^linux-source-(\d+)\.(\d+)(?:\.\d+)?$", re.MULTILINE)


def choose_package(names: str) -> str | None:
    """Choose the newest package up to TESTED. If there is none, choose the oldest after TESTED.

    Packages older than OLDEST are ignored; return None if no others remain. names: in lines, for
    example ``linux-source-6.12`` (Debian) or ``linux-source-6.8.0`` (Ubuntu).
    """
    found = {(int(match[1]), int(match[2])): match[0] for match in _PACKAGE.finditer(names)}
    versions = {version: name for version, name in found.items() if version >= OLDEST}
    tested = [version for version in versions if version <= TESTED]
    chosen = max(tested) if tested else min(versions, default=None)
    return versions[chosen] if chosen else None


def _fetch_package(cache: Path) -> tuple[Path, dict[str, Any]]:
    cache.parent.mkdir(parents=True, exist_ok=True)
    log = cache.parent / "logs" / "source.log"
    LOG.info("fetching Linux's source package with apt (about 150 MB)")
    with scratch_folder(cache.parent, ".fetch-") as work:
        apt = PrivateApt(work, log, "Linux's source package", sources=False, hint=SOURCE_HINT)
        updated = apt.get("update")
        offered = apt.cache(*LIST_PACKAGES)
        package = choose_package(offered)
        if package is None:
            if known := sorted(match[0] for match in _PACKAGE.finditer(offered)):
                oldest = ".".join(map(str, OLDEST))
                message = f"apt offers {', '.join(known)}; {oldest} is the oldest supported version"
            elif updated:
                message = "apt offers no linux-source package"
            else:
                message = f"Linux's source package could not be fetched: {apt.reason()}"
            raise apt.error(message)
        if not apt.get("download", package):
            raise apt.error(f"{package} could not be fetched: {apt.reason()}")
        facts, tarball = _open_package(work, package)
        tarball = store_fetched(cache, work, [tarball], facts)
    shown = (facts[key] for key in ("version", "package", "package_version", "file"))
    LOG.info("Linux %s (%s %s, %s)", *shown)
    return tarball, facts


def _open_package(work: Path, package: str) -> tuple[dict[str, Any], Path]:
    """Return facts about the package that was downloaded into ``work``, and its tarball's path."""
    packages = sorted(work.glob(f"{package}_*.deb"))
    if len(packages) != 1:
        raise UserError(f"apt fetched no package {package}", SOURCE_HINT)
    content = work / "content"
    try:
        subprocess.run(["dpkg-deb", "-x", packages[0], content], check=True, capture_output=True)
        version = subprocess.run(
            ["dpkg-deb", "-f", packages[0], "Version"], check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"{packages[0].name} cannot be unpacked: {error}", SOURCE_HINT) from error
    # Ubuntu's packages contain the tarball in a subfolder, and also a symbolic link to the tarball.
    # Ignore the link.
    found = sorted(content.glob("usr/src/**/linux-source-*.tar.*"))
    tarballs = [path for path in found if not path.is_symlink()]
    if len(tarballs) != 1:
        raise UserError(f"{packages[0].name} contains no tarball of Linux", SOURCE_HINT)
    upstream = re.match(r"(?:\d+:)?(\d+\.\d+(?:\.\d+)?)", version)
    facts = {
        "kind": "debian",
        "package": package,
        "package_version": version,
        "version": upstream[1] if upstream else version,
        "file": tarballs[0].name,
        "sha256": file_sha256(tarballs[0]),
    }
    return facts, tarballs[0]
