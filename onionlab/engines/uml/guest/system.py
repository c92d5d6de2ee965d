"""System calls that Python's standard library does not have (os.setns came with Python 3.12)."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_REMOUNT, MS_BIND = 0x1, 0x2, 0x20, 0x1000

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount a file system, or part of one."""
    _check(
        _libc.mount(
            source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None
        ),
        f"mount {kind or source} at {target}",
    )


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _check(_libc.unshare(flags), "unshare")


def enter_namespace(descriptor: int, kind: int) -> None:
    """Move to a namespace."""
    _check(_libc.setns(descriptor, kind), "setns")


def set_host_name(name: str) -> None:
    """Set the host name of the present namespace."""
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def power_off() -> None:
    """End the whole guest."""
    power_off_command = 0x4321FEDC
    os.sync()
    _check(_libc.reboot(power_off_command), "reboot")


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
