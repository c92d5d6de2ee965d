"""Compressed data, read in bounded memory: gzip, xz and zstd, several streams one after the other.

A file of a few kilobytes may stand for as many gigabytes. So nothing is unpacked beyond what a file
of its size plausibly holds (``most_bytes``), and no more than a piece of it at once.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import zstandard

PIECE_BYTES = 1 << 20
"""So much is unpacked at once, at most; of zstd twice as much."""

PACKED_BYTES = 1 << 12
"""How much compressed data is taken at once: that much is lost where it turns out to be damaged."""

LEAST_LIMIT_BYTES = 2**26
LARGEST_RATIO = 300
"""Logs take a 4th to a 30th of their size, and one of nothing but an idle client's heartbeats, by
xz, a 150th (tests/analysis/data/golden and LogWriter, by ``gzip``, ``xz`` and ``zstd -12``); blanks
and zeros take a 1,000th to a 30,000th."""

WINDOW_BYTES = 2**28
"""The most memory that an xz file may ask for; ``xz -9`` asks for a quarter. zstd's own limit is
half."""


class DamagedError(ValueError):
    """Compressed data that is damaged or ends early; what came before is sound."""


class TooLargeError(ValueError):
    """More than is read of such a file."""


def most_bytes(packed_bytes: int) -> int:
    """The most that a compressed file of that size may hold: 64 MiB, or 300 times its size."""
    return max(LEAST_LIMIT_BYTES, LARGEST_RATIO * packed_bytes)


def require_size(size_bytes: int, most: int) -> None:
    """Raises TooLargeError for what is more than ``most``, which the message names."""
    if size_bytes > most:
        raise TooLargeError(f"it holds more than {most / 2**20:g} MiB, the limit for its size")


class Decompressor(Protocol):
    """One stream: takes compressed data, gives pieces of what it holds."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Pieces of at most a few MiB; raises the library's own errors."""

    @property
    def ended(self) -> bool:
        """Whether the stream is complete."""

    @property
    def behind(self) -> bytes:
        """What was fed and lies behind the stream's end."""


class _OfStandardLibrary:
    """What the decompressors of zlib and lzma have in common."""

    _stream: Any

    @property
    def ended(self) -> bool:
        return bool(self._stream.eof)

    @property
    def behind(self) -> bytes:
        return bytes(self._stream.unused_data)


class _Gzip(_OfStandardLibrary):
    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self._stream.eof:
            yield self._stream.decompress(data, PIECE_BYTES)
            data = self._stream.unconsumed_tail


class _Xz(_OfStandardLibrary):
    def __init__(self) -> None:
        self._stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=WINDOW_BYTES)

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield self._stream.decompress(data, PIECE_BYTES)
        while not self._stream.eof and not self._stream.needs_input:
            yield self._stream.decompress(b"", PIECE_BYTES)


class _Zstd:
    STEP_BYTES = 64
    """The library cannot be told how much to unpack. Four bytes give 128 KiB at most, so these give
    2 MiB."""

    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor().decompressobj()
        self._behind = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        for begin in range(0, len(data), self.STEP_BYTES):
            yield self._stream.decompress(data[begin : begin + self.STEP_BYTES])
            if self._stream.eof:
                self._behind = self._stream.unused_data + data[begin + self.STEP_BYTES :]
                return

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def behind(self) -> bytes:
        return self._behind


DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {".gz": _Gzip, ".xz": _Xz, ".zst": _Zstd}
"""By the ending of a file's name."""

_ERRORS = (zlib.error, lzma.LZMAError, zstandard.ZstdError)


def pieces(file: BinaryIO, suffix: str, most: int | None = None) -> Iterator[bytes]:
    """What a compressed file holds, from front to end.

    Args:
        file: opened for bytes.
        suffix: the ending of its name, one of ``DECOMPRESSORS``; any other: it is not compressed.
        most: bytes that it may hold; without it as many as it plausibly does, where it is
            compressed.

    Raises:
        DamagedError: it is damaged or ends early.
        TooLargeError: it holds more than ``most``.
    """
    make = DECOMPRESSORS.get(suffix)
    if make is None:
        given = _plain(file)
    else:
        given = _unpacked(file, make)
        most = most or most_bytes(_size(file))
    total = 0
    for piece in given:
        total += len(piece)
        if most is not None:
            require_size(total, most)
        if piece:
            yield piece


def read_whole(path: Path, most: int) -> bytearray:
    """A file's content; one whose name has an ending of ``DECOMPRESSORS`` is compressed.

    Raises:
        OSError: it cannot be read.
        DamagedError: it is damaged or not compressed as its name says.
        TooLargeError: it holds more than ``most``, or than it plausibly does.
    """
    with path.open("rb") as file:
        if path.suffix in DECOMPRESSORS:
            most = min(most, most_bytes(_size(file)))
        content = bytearray()
        for piece in pieces(file, path.suffix, most):
            content += piece
        return content


class UnpackedFile:
    """A compressed file as a file of what it holds, to be read once from front to end."""

    def __init__(self, file: BinaryIO, suffix: str) -> None:
        self._pieces = pieces(file, suffix)
        self._piece = b""
        self._at = 0

    def read(self, size: int) -> bytes:
        """The next bytes, as many as asked for unless it ends. Raises as `pieces`."""
        parts = []
        while size > 0:
            if self._at == len(self._piece):
                self._piece, self._at = next(self._pieces, b""), 0
                if not self._piece:
                    break
            part = self._piece[self._at : self._at + size]
            self._at += len(part)
            size -= len(part)
            parts.append(part)
        return b"".join(parts)


def _size(file: BinaryIO) -> int:
    end = file.seek(0, 2)
    file.seek(0)
    return end


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


def _unpacked(file: BinaryIO, make: Callable[[], Decompressor]) -> Iterator[bytes]:
    """Pieces, some of them empty."""
    # A compressed file may be several streams one after the other (appended logs).
    stream = make()
    fresh = True
    while data := file.read(PACKED_BYTES):
        while data:
            if stream.ended:
                stream = make()
            fresh = False
            try:
                yield from stream.feed(data)
            except _ERRORS as error:
                raise DamagedError(f"compressed data is damaged ({error})") from None
            data = stream.behind if stream.ended else b""
    if not fresh and not stream.ended:
        raise DamagedError("compressed data ends early")
