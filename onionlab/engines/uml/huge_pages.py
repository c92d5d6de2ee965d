"""Run a command whose TMPDIR lies on huge pages, where the machine lets it.

    python huge_pages.py BYTES PROGRAM [ARGUMENT]...

A guest's memory is one file, which each of its hundreds of processes maps: with pages of 4 KiB each
of them fills page tables of its own for what all have in common, at full size a gigabyte of them
in all (docs/explanation/engines.md). A tmpfs gives huge pages only where it was mounted so, and
few are. So the command gets one of its own, in a mount namespace that goes when it ends; without
root's rights in a user namespace as well, in which it has the same user.

It runs with the interpreter alone (`python -I -S`), and becomes the command. Where any of this is
refused the command runs without, and its results are the same.
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
"""Begins the line that tells why."""


def command(size_bytes: int) -> list[str]:
    """The words before a command that is to have a TMPDIR of so much room on huge pages."""
    python, script = Path(sys.executable).resolve(), Path(__file__).resolve()
    return [str(python), "-I", "-S", "-B", str(script), str(size_bytes)]


def mount_huge_pages(folder: str, size_bytes: int) -> None:
    """Mount a tmpfs with huge pages over a folder, for this process and those that it starts.

    Raises OSError where the machine does not let it.
    """
    if _libc.unshare(CLONE_NEWNS) != 0:
        _become_root_of_a_user_namespace()
    _check(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    options = f"huge=within_size,size={size_bytes},mode=700".encode()
    flags = MS_NOSUID | MS_NODEV
    _check(_libc.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, options), "mount")


def _become_root_of_a_user_namespace() -> None:
    """Get the right to mount, in namespaces of its own, where the user has the same number."""
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
    # With other rights it may no longer end with the one who started it.
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    """Become the command."""
    size_bytes, command = int(sys.argv[1]), sys.argv[2:]
    try:
        mount_huge_pages(os.environ["TMPDIR"], size_bytes)
    except OSError as error:
        print(f"{REFUSED}: {error.strerror}", flush=True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
