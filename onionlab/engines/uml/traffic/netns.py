"""Network namespaces: a socket belongs for life to the one it was made in."""

from __future__ import annotations

import ctypes
import os

from onionlab.errors import UserError

_CLONE_NEWNET = 0x40000000


class Namespaces:
    """The namespaces of a simulation, by their open descriptors.

    The process stays where it was last: only the making of sockets depends on it, so going back
    each time would cost a system call for nothing. `close` goes back to the process's own.
    os.setns() exists from Python 3.12 on, so this calls the C library.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fds: dict[str | None, int] = {}
        self._current: str | None = None

    def open(self, path: str) -> None:
        """Open a namespace for later use. Raises UserError."""
        if not self._fds:
            self._fds[None] = _open("/proc/self/ns/net")
        if path not in self._fds:
            self._fds[path] = _open(path)

    def enter(self, path: str | None) -> None:
        """Let the sockets made from now on be in a namespace opened before; None: the own one.

        Raises UserError where the process may not.
        """
        if path == self._current:
            return
        if self._libc.setns(self._fds[path], _CLONE_NEWNET) != 0:
            raise UserError(
                f"cannot enter the network namespace {path or 'of this process'}: "
                + os.strerror(ctypes.get_errno())
            )
        self._current = path

    def close(self) -> None:
        """Go back and close all descriptors."""
        self.enter(None)
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"cannot open the network namespace {path}: {error.strerror}") from error
