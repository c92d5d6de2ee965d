"""Network namespaces. A socket permanently belongs to the namespace that it was created in."""

from __future__ import annotations

import os
from collections.abc import Iterable

from onionlab.engines.uml.system import CLONE_NEWNET, enter_namespace


class Namespaces:
    """The network namespaces of a simulation, with an open file descriptor of each.

    paths: the paths of the namespaces. None stands for the namespace in which the process started.
    The process stays in the namespace that it entered last, because only the creation of sockets
    depends on the namespace, and each change is a system call.
    """

    def __init__(self, paths: Iterable[str | None]) -> None:
        self._fds = {
            path: os.open(path or "/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            for path in dict.fromkeys((None, *paths))
        }
        self._current: str | None = None

    def enter(self, path: str | None) -> None:
        """Enter a namespace. New sockets are then created in this namespace.

        Raises OSError if the process has no permission.
        """
        if path != self._current:
            enter_namespace(self._fds[path], CLONE_NEWNET)
            self._current = path
