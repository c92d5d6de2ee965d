"""Reading of logs line by line, plain or compressed, including truncated and damaged files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.compressed import DamagedError, TooLargeError, pieces
from analysis.formats.format_model import LARGEST_NUMBER
from analysis.formats.record_files import Example, FileProblems, ParseReport
from analysis.formats.run_files import RunClock

MAX_LINE_BYTES = 1 << 16
"""Maximum length of a line. The rest of a longer line is dropped."""

MAX_LINES = 10_000
"""Maximum number of lines that ``LogFile.batches`` yields at once, in case of very short lines."""

MAX_MALFORMED = 10_000
"""Maximum number of malformed lines in a log, unless it has at least as many lines with data.

A log that exceeds this number counts as a log of another program, and its reading stops.
"""

MAX_EXAMPLES = 5
"""Maximum number of malformed lines of one log that are stored as examples."""

MAX_BYTE_COUNT = 1 << 50
"""Maximum byte count: the largest that an experiment may request."""

CUT = b"\0"
"""Replaces the rest of a line that was too long. No program writes this byte."""


@dataclass
class LogFile:
    """A log that is read once, sequentially.

    After the last batch of ``batches``, ``tail`` contains the bytes after the last newline, and
    ``damage`` describes damage of the compressed stream, or is None.
    """

    path: Path
    bytes_read: int = 0
    tail: bytes = b""
    damage: str | None = None

    def batches(self) -> Iterator[list[bytes]]:
        """Yield lists of complete lines without LF or CRLF.

        A list has at most ``MAX_LINES`` lines and a few MiB.

        Raises:
            AnalysisError: the file is compressed, and expands to more than any log of its size.
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
            if max(map(len, lines)) > MAX_LINE_BYTES:
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


def _cut(line: bytes) -> bytes:
    return line if len(line) <= MAX_LINE_BYTES else line[:MAX_LINE_BYTES] + CUT


class MalformedError(ValueError):
    """Raised for a line that violates the grammar of its log."""


@dataclass
class Log(ABC):
    """The content of one log; call ``feed`` with its lines in order.

    Attributes:
        epoch_us: start of the run, as Unix time in microseconds.
        malformed: number of lines that were not understood.
        examples: the first few of these lines.
        hosts: the names that the log states for its host, usually one.
        encoding: encoding and error handler for the text of ``examples``.
    """

    epoch_us: int = 0
    lines: int = 0
    malformed: int = 0
    examples: list[Example] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    encoding: ClassVar[tuple[str, str]] = ("ascii", "backslashreplace")

    @property
    @abstractmethod
    def understood(self) -> int:
        """Number of lines with data."""

    @abstractmethod
    def parse(self, line: bytes) -> None:
        """Parse one line. Raises MalformedError."""

    @abstractmethod
    def damage(self, clock: RunClock) -> str | None:
        """Return a message if the log ends before its run or lacks lines; None if not known."""

    @property
    def is_foreign(self) -> bool:
        """True if so many lines are malformed that the log must be from another program."""
        return self.malformed > max(MAX_MALFORMED, self.understood)

    @property
    def first_problem(self) -> str | None:
        """The first malformed line and what is wrong with it; None without such a line."""
        return f"line {self.examples[0].line}: {self.examples[0].reason}" if self.examples else None

    def feed(self, lines: Iterable[bytes]) -> None:
        """Parse complete lines without their newlines."""
        for line in lines:
            self.lines += 1
            try:
                if len(line) > MAX_LINE_BYTES:
                    raise MalformedError(f"the line is longer than {MAX_LINE_BYTES} bytes")
                self.parse(line)
            except MalformedError as error:
                self.reject(line, str(error))

    def feed_tail(self, tail: bytes) -> None:
        """Count the bytes after the last newline as a line, but do not parse them.

        This incomplete line may end in the middle of a number.
        """
        del tail
        self.lines += 1

    def reject(self, line: bytes, reason: str) -> None:
        """Count a malformed line."""
        self.malformed += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(Example(self.lines, reason, line[:200].decode(*self.encoding)))

    def require_in_run(self, time_us: int) -> None:
        """Raise MalformedError for a Unix time outside of the run, which starts at ``epoch_us``."""
        if not 0 <= time_us - self.epoch_us <= LARGEST_NUMBER * 1e6:
            raise MalformedError("the time is outside of the run")


def require_bytes(*counts: int) -> None:
    """Raise MalformedError for an impossible byte count."""
    if max(counts) > MAX_BYTE_COUNT:
        raise MalformedError(f"{max(counts)} bytes are more than there can be")


def read_log(run_directory: Path, path: Path, log: Log) -> tuple[LogFile, FileProblems]:
    """Feed the lines of a file to ``log``, and return the file and its problems.

    Reading stops early if the file turns out to be from another program.

    Raises:
        AnalysisError: the log states the name of another host of the run than that of its folder. A
            name that no host of the run has is accepted, as it may come from TGen's environment.
    """
    file = LogFile(path)
    problems = FileProblems(path.relative_to(run_directory).as_posix())
    for lines in file.batches():
        log.feed(lines)
        if log.is_foreign:
            break
    if file.tail:
        problems.cut_last_line = True
        log.feed_tail(file.tail)
    problems.damage = file.damage
    problems.malformed_lines = log.malformed
    problems.examples = log.examples
    host = path.parent.name
    for name in () if log.is_foreign else sorted(log.hosts - {host}):
        if (run_directory / files.HOSTS / Path(name).name).is_dir():
            raise AnalysisError(
                f"host {host}: {path} is the log of host {name}",
                "restore the log from a backup, or remove the run and repeat it",
            )
    return file, problems


def count_log(
    report: ParseReport, file: LogFile, log: Log, problems: FileProblems, clock: RunClock
) -> None:
    """Add the size and problems of a log to the report.

    If ``problems`` has no damage yet, it gets the damage that ``log`` finds, such as an early end.
    """
    problems.damage = problems.damage or log.damage(clock)
    report.bytes += file.bytes_read
    report.lines += log.lines
    report.add(problems)
