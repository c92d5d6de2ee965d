"""Run a command with a TMPDIR that uses huge pages, if the machine allows this.

    python huge_pages.py BYTES PROGRAM [ARGUMENT]...

A guest's memory is one file that each of the guest's hundreds of processes maps. With pages of
4 KiB, each process needs its own page tables for the same memory. In a guest with 537 simulated
hosts, these tables took half a gigabyte. A tmpfs uses huge pages only with a mount option that is
rarely set. The command therefore gets its own tmpfs, in a mount namespace that disappears when the
command ends. Users other than root need a user namespace for this, in which they keep their id.

The script runs with a bare interpreter (`python -I -S`) and then replaces itself by the command. If
any of these steps is not permitted, the command runs without huge pages, with the same results.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


REFUSED = "no huge pages for the guest's memory"
"""The prefix of the output line that states why huge pages are not used."""


def command(size_bytes: int) -> list[str]:
    """Return the arguments to put before a command, so that its TMPDIR uses huge pages.

    size_bytes: the size of the file system at TMPDIR.
    """
    python, script = Path(sys.executable).resolve(), Path(__file__).resolve()
    return [str(python), "-I", "-S", "-B", str(script), str(size_bytes)]


def mount_huge_pages(folder: str, size_bytes: int) -> None:
    """Mount a tmpfs with huge pages over a folder, for this process and its children.

    Raises OSError if the machine does not allow it.
    """
    if _libc.unshare(CLONE_NEWNS) != 0:
        _become_root_of_a_user_namespace()
    _check(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    options = f"huge=within_size,size={size_bytes},mode=700".encode()
    flags = MS_NOSUID | MS_NODEV
    _check(_libc.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, options), "mount")


def _become_root_of_a_user_namespace() -> None:
    """Enter new user and mount namespaces, in which mounts are allowed. The user's id is kept."""
    user, group, parent = os.geteuid(), os.getegid(), os.getppid()
    _check(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text.encode())
        os.close(file)
    # The change of credentials clears the parent-death signal, so set it again. If the parent has
    # ended in the meantime, no signal will come, so kill this process here.
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    """Mount a tmpfs with huge pages if possible, and replace this process by the command."""
    size_bytes, command = int(sys.argv[1]), sys.argv[2:]
    try:
        mount_huge_pages(os.environ["TMPDIR"], size_bytes)
    except OSError as error:
        print(f"{REFUSED}: {error.strerror}", flush=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
