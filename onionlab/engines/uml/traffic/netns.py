"""Network namespaces. A socket permanently belongs to the namespace that it was created in."""

from __future__ import annotations

import os

from onionlab.engines.uml.system import CLONE_NEWNET, enter_namespace
from onionlab.errors import UserError


class Namespaces:
    """The network namespaces of a simulation. Keeps an open file descriptor of each.

    The process stays in the namespace that it entered last, because only the creation of sockets
    depends on the namespace, and each change is a system call. `close` returns to the namespace in
    which the process started.
    """

    def __init__(self) -> None:
        self._fds: dict[str | None, int] = {}
        self._current: str | None = None

    def open(self, path: str) -> None:
        """Open a namespace for later use. Raises UserError if this fails."""
        try:
            if not self._fds:
                self._fds[None] = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            if path not in self._fds:
                self._fds[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(
                f"cannot open the network namespace {path}: {error.strerror}"
            ) from error

    def enter(self, path: str | None) -> None:
        """Enter a namespace. New sockets are then created in this namespace.

        path: a namespace that `open` has opened, or None for the namespace in which the process
        started. Raises OSError if the process has no permission.
        """
        if path != self._current:
            enter_namespace(self._fds[path], CLONE_NEWNET)
            self._current = path

    def close(self) -> None:
        """Return to the namespace in which the process started, and close all descriptors."""
        self.enter(None)
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
