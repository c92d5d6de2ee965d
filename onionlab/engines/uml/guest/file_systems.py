"""The guest's file systems: the machine's files for reading, the guest's memory for writing.

The root is the read-only file system of the machine that runs the guest. A simulation writes only
to a file system in the guest's memory, because each write to a file of the machine would need a
system call of the machine's kernel. At the end, logs are copied to the machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from onionlab.engines.uml import system
from onionlab.engines.uml.guest.boot import LOGS_FOLDER
from onionlab.engines.uml.guest.description import Description

MEMORY = Path("/run")
SIMULATION = MEMORY / "simulation"
PROGRAMS = MEMORY / "programs"
CALLS = Path("/proc/fs/nfsd")
"""The mount point of the library that makes system calls faster: a folder that the kernel provides
for mounts. A new folder in MEMORY would consume one of the kernel's random numbers, and all later
random numbers would differ from those of existing runs.
"""
HOSTS = SIMULATION / "shadow.data" / "hosts"
OUTSIDE = MEMORY / "outside"
"""The mount point of the run directory, which is on the machine that runs the guest."""


def mount_basics() -> None:
    """Mount the file systems that programs expect."""
    system.mount("proc", "/proc", "proc")
    system.mount("dev", "/dev", "devtmpfs")
    system.mount("memory", str(MEMORY), "tmpfs", data="size=100%,nr_inodes=0,mode=755")


def mount_outside(run_directory: str) -> None:
    """Mount the run directory writable at OUTSIDE.

    With noatime, no read changes an inode. By default, a read updates a file's access time if it is
    older than the modification time, which depends on the machine's files. The guest's later write
    of the changed inode would move simulated events.
    """
    OUTSIDE.mkdir()
    flags = system.MS_NOATIME
    system.mount("outside", str(OUTSIDE), "hostfs", flags=flags, data=run_directory)


def write_names(description: Description) -> None:
    """Make all hosts' names resolvable, for the C library and for the resolver inside Tor."""
    lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in description.hosts)]
    _cover("/etc/hosts", "\n".join(lines) + "\n")
    _cover("/etc/resolv.conf", "nameserver 127.0.0.1\n")


def provide_programs(programs: Mapping[str, str]) -> None:
    """Mount the executables at paths that are the same on every machine.

    programs: base name -> path of the executable. The path of a running program is in its memory. A
    path of another length would move adjacent data, so results might depend on a checkout's path.
    """
    PROGRAMS.mkdir()
    for name, path in programs.items():
        (PROGRAMS / name).touch()
        system.mount(path, str(PROGRAMS / name), flags=system.MS_BIND)


def provide_calls(library: str) -> dict[str, str]:
    """Mount the library that makes system calls faster. Return the variables that preload it.

    library: its path on the machine, or empty if there is none.
    """
    if not library:
        return {}
    folder, name = os.path.split(library)
    system.mount(folder, str(CALLS), flags=system.MS_BIND)
    return {"LD_PRELOAD": str(CALLS / name)}


def copy_in() -> None:
    """Copy the run's input to SIMULATION: conf/, and shadow.data.template as shadow.data."""
    _copy_private(OUTSIDE / "conf", SIMULATION / "conf")
    _copy_private(OUTSIDE / "shadow.data.template", SIMULATION / "shadow.data")


def copy_out(name: str) -> None:
    """Copy the output of a host's programs to the run directory, except empty error logs."""
    target = OUTSIDE / LOGS_FOLDER / name
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted((HOSTS / name).glob("*.std*")):
        if path.suffix == ".stdout" or path.stat().st_size:
            shutil.copyfile(path, target / path.name)


def _copy_private(source: Path, target: Path) -> None:
    """Copy a tree in alphabetical order. Make it readable only by its owner, as Tor requires.

    The copy must not depend on the machine's file system and umask, as the original does.
    """
    target.mkdir(mode=0o700, parents=True)
    for path in sorted(source.iterdir()):
        if path.is_dir():
            _copy_private(path, target / path.name)
        else:
            shutil.copyfile(path, target / path.name)
            (target / path.name).chmod(0o600)


def _cover(path: str, content: str) -> None:
    """Give a path of the machine's file system another content, only in the guest."""
    cover = MEMORY / ("cover" + path.replace("/", "-"))
    cover.write_text(content)
    system.mount(str(cover), path, flags=system.MS_BIND)
