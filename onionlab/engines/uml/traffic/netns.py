"""Network namespaces. A socket permanently belongs to the namespace that it was created in."""

from __future__ import annotations

import ctypes
import os

from onionlab.errors import UserError

_CLONE_NEWNET = 0x40000000


class Namespaces:
    """The namespaces of a simulation, by their open descriptors.

    The process stays in the last namespace: only the creation of sockets depends on it, so
    returning would be an unnecessary system call. `close` returns to the process's own. os.setns()
    was added in Python 3.12, so this calls the C library.
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
        """Create new sockets in a namespace that was opened before; None for the process's own.

        Raises UserError if the process has no permission.
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
        """Return to the own namespace and close all descriptors."""
        self.enter(None)
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"cannot open the network namespace {path}: {error.strerror}") from error
