"""System calls that Python 3.11's standard library lacks (3.12 added os.setns and os.unshare).

On failure, the functions raise OSError.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time

CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000
MS_NOATIME, MS_BIND = 0x400, 0x1000

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount a file system. With the flag MS_BIND, mount an existing file or folder."""
    _check(
        _libc.mount(
            source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None
        ),
        f"mount {kind or source} at {target}",
    )


def unshare(flags: int) -> None:
    """Move this process to new namespaces of the kinds in `flags`."""
    _check(_libc.unshare(flags), "unshare")


def enter_namespace(descriptor: int, kind: int) -> None:
    """Move this process to an open namespace. kind: the CLONE_NEW* flag of this namespace."""
    _check(_libc.setns(descriptor, kind), "setns")


def set_host_name(name: str) -> None:
    """Set the host name of the current namespace."""
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def power_off() -> None:
    """Power the guest off."""
    power_off_command = 0x4321FEDC
    os.sync()
    _check(_libc.reboot(power_off_command), "reboot")


class Alarm:
    """Sends this process a signal at a time of CLOCK_REALTIME, with nanosecond precision.

    Python's own timers accept only durations, as floating-point numbers of seconds.
    """

    def __init__(self, signal_number: int) -> None:
        # struct sigevent: value, signal, SIGEV_SIGNAL, padding up to 64 bytes.
        event = ctypes.create_string_buffer(struct.pack("=Qii48x", 0, signal_number, 0), 64)
        self._timer = ctypes.c_void_p()
        _check(
            _libc.timer_create(time.CLOCK_REALTIME, event, ctypes.byref(self._timer)),
            "timer_create",
        )

    def set(self, at_unix_ns: int) -> None:
        """Set the time of the signal. A new time replaces an earlier one."""
        absolute = 1
        # struct itimerspec: the interval (0 for a single signal), then the time.
        seconds, nanoseconds = divmod(at_unix_ns, 10**9)
        moment = ctypes.create_string_buffer(struct.pack("=qqqq", 0, 0, seconds, nanoseconds), 32)
        _check(_libc.timer_settime(self._timer, absolute, moment, None), "timer_settime")


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
