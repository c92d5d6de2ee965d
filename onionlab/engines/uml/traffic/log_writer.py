"""Write a log in TGen's format.

A line starts with the local date and time, the Unix time of the same instant, the level, and the
place in TGen's source at which TGen writes such a line. This place identifies the kind of the line.
"""

from __future__ import annotations

import functools
from pathlib import Path

from .loop import Loop
from .options import LogLevel


class TgenLogWriter:
    """The log file of one host. wants_info: whether lines of level info are written.

    critical, warning, message, info: functions that log a line of this level. Their arguments are
    the line's text, and before it the place in the source of TGen 1.1.2 at which TGen writes such a
    line, in the form "[FILE:LINE] [FUNCTION]".
    """

    def __init__(self, path: Path, level: LogLevel, loop: Loop) -> None:
        """Create the file, or truncate an existing one."""
        self.wants_info = level >= LogLevel.INFO
        self.critical, self.warning, self.message, self.info = (
            functools.partial(self._add, level)
            for level in (LogLevel.CRITICAL, LogLevel.WARNING, LogLevel.MESSAGE, LogLevel.INFO)
        )
        self._threshold = level
        self._loop = loop
        # Only `flush` writes to the file, so that an error of the file system is not taken for the
        # error of a socket.
        self._lines: list[str] = []
        self._file = path.open("w", encoding="utf-8", errors="surrogateescape")

    def _add(self, level: LogLevel, place: str, text: str) -> None:
        if level <= self._threshold:
            self._lines.append(f"{self._loop.stamp()} [{level.name.lower()}] {place} {text}\n")

    def flush(self) -> None:
        """Write the lines to the file."""
        self._file.write("".join(self._lines))
        self._file.flush()
        self._lines.clear()

    def close(self) -> None:
        """Write the lines to the file and close it."""
        with self._file:
            self.flush()
