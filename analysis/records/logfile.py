"""Reading of logs as lines of bytes, plain or compressed, including truncated files."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.compressed import DamagedError, TooLargeError, pieces
from analysis.formats.format_model import LARGEST_NUMBER

MAX_LINE_BYTES = 1 << 16
"""Maximum length of a line; the rest of a longer line is dropped."""

MAX_LINES = 10_000
"""Maximum number of lines in a batch. It exceeds the typical number in 2 MiB."""

MAX_MALFORMED = 10_000
"""Reading stops if there are more malformed lines than this, and more than understood ones."""

CUT = b"\0"
"""Marks the end of a line that was too long. No program writes it."""


@dataclass
class LogFile:
    """A log that is read once, sequentially.

    After the last batch of ``batches``, ``tail`` contains the bytes after the last newline, and
    ``damage`` describes damage of the compressed stream, or is None.
    """

    path: Path
    bytes_read: int = 0
    tail: bytes = b""
    damage: str | None = field(default=None)

    def batches(self) -> Iterator[list[bytes]]:
        """Yield lists of complete lines without LF or CRLF, at most 1 MiB and 10,000 lines each.

        Raises:
            AnalysisError: it is compressed and expands to more than any log of its size.
        """
        rest = b""
        for piece in self._pieces():
            self.bytes_read += len(piece)
            first, newline, others = piece.partition(b"\n")
            # Stop extending a line that is already too long, so that each byte is copied only once.
            if len(rest) <= MAX_LINE_BYTES:
                rest += first[: MAX_LINE_BYTES + 1]
            if not newline:
                continue
            lines = others.split(b"\n")
            lines.insert(0, rest)
            rest = lines.pop()
            if _any_long(lines):
                lines = [_cut(line) for line in lines]
            if lines[0].endswith(b"\r"):
                lines = [line.removesuffix(b"\r") for line in lines]
            for begin in range(0, len(lines), MAX_LINES):
                yield lines[begin : begin + MAX_LINES]
        self.tail = _cut(rest)

    def _pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            try:
                yield from pieces(file, self.path.suffix)
            except DamagedError as error:
                self.damage = str(error)
            except TooLargeError as error:
                raise AnalysisError(
                    f"{self.path}: {error}",
                    "no log compresses that well; if it is valid, decompress it and try again",
                ) from None


def _any_long(lines: list[bytes]) -> bool:
    return max(map(len, lines)) > MAX_LINE_BYTES


def _cut(line: bytes) -> bytes:
    return line if len(line) <= MAX_LINE_BYTES else line[:MAX_LINE_BYTES] + CUT


def require_own_log(run_directory: Path, host: str, path: Path, named: AbstractSet[str]) -> None:
    """Raise AnalysisError if a log of ``host`` belongs to another host of the run.

    named: the host names in the log. Names of no host are accepted, as TGen's environment may set
    them.
    """
    for name in sorted(named - {host}):
        if (run_directory / files.HOSTS / Path(name).name).is_dir():
            raise AnalysisError(
                f"host {host}: {path} is the log of host {name}",
                "restore the log from a backup, or remove the run and repeat it",
            )


def is_in_run(time_us: int, epoch_us: int) -> bool:
    """Return whether a log time is within the run, which starts at ``epoch_us``."""
    return 0 <= time_us - epoch_us <= LARGEST_NUMBER * 1e6
