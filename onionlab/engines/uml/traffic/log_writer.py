"""Write a log in TGen's format, buffered in large blocks.

A line starts with the local date and time, the Unix time of the same instant, the level, and the
place in TGen's source at which TGen writes such a line. This place identifies the kind of the line.
"""

from __future__ import annotations

from pathlib import Path

from onionlab.errors import UserError

from .loop import Clock
from .options import LogLevel

BUFFER_BYTES = 1 << 16


class TgenLogWriter:
    """The log file of one host. wants_info: whether lines of level info are written.

    The argument `place` of its methods has the form "[FILE:LINE] [FUNCTION]". It is the place in
    the source of TGen 1.1.2 at which TGen writes such a line.
    """

    def __init__(self, path: Path, level: LogLevel, clock: Clock) -> None:
        """Create the file, or truncate an existing one. Raises UserError if this fails."""
        self.wants_info = level.value >= LogLevel.INFO.value
        self._path = path
        self._threshold = level.value
        self._clock = clock
        try:
            self._file = path.open("w", BUFFER_BYTES, encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise self._failure(error) from error

    def critical(self, place: str, text: str) -> None:
        """Write a line of level critical."""
        self._write(LogLevel.CRITICAL, place, text)

    def warning(self, place: str, text: str) -> None:
        """Write a line of level warning."""
        self._write(LogLevel.WARNING, place, text)

    def message(self, place: str, text: str) -> None:
        """Write a line of level message."""
        self._write(LogLevel.MESSAGE, place, text)

    def info(self, place: str, text: str) -> None:
        """Write a line of level info."""
        self._write(LogLevel.INFO, place, text)

    def _write(self, level: LogLevel, place: str, text: str) -> None:
        if level.value <= self._threshold:
            line = f"{self._clock.stamp()} [{level.name.lower()}] {place} {text}\n"
            try:
                self._file.write(line)
            except OSError as error:
                raise self._failure(error) from error

    def flush(self) -> None:
        """Write the buffered lines to the file. Raises UserError if this fails."""
        try:
            self._file.flush()
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Flush and close the file. Raises UserError if this fails."""
        try:
            self._file.close()
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> UserError:
        return UserError(f"cannot write the log {self._path}: {error.strerror}")
