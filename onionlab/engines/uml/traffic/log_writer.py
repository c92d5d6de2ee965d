"""Write a log in TGen's format, buffered in large blocks.

A line starts with the local date and time, the same instant as Unix time, the level, and the place
in TGen's source that writes such a line, by which parsers and people identify it.
"""

from __future__ import annotations

import os
from pathlib import Path

from onionlab.errors import UserError

from .action_graph import LogLevel
from .clock import Clock

FLUSH_BYTES = 1 << 16


class TgenLogWriter:
    """The log file of one host.

    Lines are buffered until `flush`, or until they have FLUSH_BYTES. wants_info: whether lines of
    level info are written.
    """

    def __init__(self, path: Path, level: LogLevel, clock: Clock) -> None:
        """Create the file; an existing one is truncated. Raises UserError."""
        self.path = path
        self.wants_info = level.value >= LogLevel.INFO.value
        self._threshold = level.value
        self._clock = clock
        self._lines: list[str] = []
        self._characters = 0
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        except OSError as error:
            raise UserError(f"cannot write the log {path}: {error.strerror}") from error

    def critical(self, place: str, text: str) -> None:
        """Write a line of level critical."""
        self._write(LogLevel.CRITICAL, place, text)

    def warning(self, place: str, text: str) -> None:
        """Write a line of level warning."""
        self._write(LogLevel.WARNING, place, text)

    def message(self, place: str, text: str) -> None:
        """Write a line of level message. place: "[FILE:LINE] [FUNCTION]" of TGen 1.1.2."""
        self._write(LogLevel.MESSAGE, place, text)

    def info(self, place: str, text: str) -> None:
        """Write a line of level info."""
        self._write(LogLevel.INFO, place, text)

    def _write(self, level: LogLevel, place: str, text: str) -> None:
        if level.value > self._threshold:
            return
        line = f"{self._clock.stamp()} [{level.name.lower()}] {place} {text}\n"
        self._lines.append(line)
        self._characters += len(line)
        if self._characters >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines. Raises UserError, for example if the disk is full."""
        if not self._lines:
            return
        data = memoryview("".join(self._lines).encode("utf-8", "surrogateescape"))
        self._lines.clear()
        self._characters = 0
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise UserError(f"cannot write the log {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Flush and close the file."""
        try:
            self.flush()
        finally:
            os.close(self._fd)
