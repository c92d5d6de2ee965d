"""Reads a log as lines of bytes, whatever it is compressed with, and survives a cut file."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.compressed import DamagedError, TooLargeError, pieces
from analysis.formats.format_model import LARGEST_NUMBER

LONGEST_LINE_BYTES = 1 << 16
"""No program that is read here writes a longer one: of what is longer the rest is dropped."""

MOST_LINES = 10_000
"""In one batch; as many are usual in 2 MiB."""

MOST_MALFORMED = 10_000
"""Lines that are not understood: where these are more than those that are, the rest is not read."""

CUT = b"\0"
"""Ends a line that was too long, and no line of any program."""


@dataclass
class LogFile:
    """One log, read once from front to end.

    After the last batch of ``batches``, ``tail`` holds what stands after the last newline and
    ``damage`` says what is wrong with the compressed stream, or is None.
    """

    path: Path
    bytes_read: int = 0
    tail: bytes = b""
    damage: str | None = field(default=None)

    def batches(self) -> Iterator[list[bytes]]:
        """Yield lists of whole lines without LF or CRLF, 1 MiB and 10,000 lines at most.

        Raises:
            AnalysisError: it is compressed and holds more than any log of its size.
        """
        rest = b""
        for piece in self._pieces():
            self.bytes_read += len(piece)
            first, newline, others = piece.partition(b"\n")
            # What is too long already does not grow: each byte is copied once.
            if len(rest) <= LONGEST_LINE_BYTES:
                rest += first[: LONGEST_LINE_BYTES + 1]
            if not newline:
                continue
            lines = others.split(b"\n")
            lines.insert(0, rest)
            rest = lines.pop()
            if _any_long(lines):
                lines = [_cut(line) for line in lines]
            if lines[0].endswith(b"\r"):
                lines = [line.removesuffix(b"\r") for line in lines]
            for begin in range(0, len(lines), MOST_LINES):
                yield lines[begin : begin + MOST_LINES]
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
                    "no log is like that; unpacked, it is read all the same",
                ) from None


def _any_long(lines: list[bytes]) -> bool:
    return max(map(len, lines)) > LONGEST_LINE_BYTES


def _cut(line: bytes) -> bytes:
    return line if len(line) <= LONGEST_LINE_BYTES else line[:LONGEST_LINE_BYTES] + CUT


def require_own_log(run_directory: Path, host: str, path: Path, named: AbstractSet[str]) -> None:
    """Raise AnalysisError if a log of ``host`` names another host of the run as its own.

    named: the hosts that the log names. A name of no host is accepted: the environment of TGen may
    set one.
    """
    for name in sorted(named - {host}):
        if (run_directory / files.HOSTS / Path(name).name).is_dir():
            raise AnalysisError(
                f"host {host}: {path} is the log of host {name}",
                "restore the log from a copy, or remove the run and repeat it",
            )


def is_in_run(time_us: int, epoch_us: int) -> bool:
    """Return whether a time of a log is one of its run, which starts at ``epoch_us``."""
    return 0 <= time_us - epoch_us <= LARGEST_NUMBER * 1e6
