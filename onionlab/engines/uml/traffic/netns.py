"""Network namespaces: a socket belongs for life to the one it was made in."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from onionlab.errors import UserError

__all__ = ["Namespaces"]

_CLONE_NEWNET = 0x40000000


class Namespaces:
    """The namespaces of a simulation, by their open descriptors.

    os.setns() exists from Python 3.12 on, so this calls the C library.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fds: dict[str, int] = {}
        self._own = -1

    def open(self, path: str) -> None:
        """Open a namespace for later use. Raises UserError."""
        if path in self._fds:
            return
        try:
            if self._own < 0:
                self._own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self._fds[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(
                f"cannot open the network namespace {path}: {error.strerror}"
            ) from error

    @contextmanager
    def inside(self, path: str | None) -> Iterator[None]:
        """Make sockets in a namespace opened before; None: in the process's own."""
        if path is None:
            yield
            return
        self._enter(self._fds[path], path)
        try:
            yield
        finally:
            self._enter(self._own, "its own network namespace")

    def _enter(self, fd: int, name: str) -> None:
        if self._libc.setns(fd, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise UserError(f"cannot enter the network namespace {name}: {os.strerror(number)}")

    def close(self) -> None:
        """Close all descriptors."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
        if self._own >= 0:
            os.close(self._own)
            self._own = -1
