"""Read files that are compressed with gzip, xz or zstd, in bounded memory.

A file of a few kilobytes can hold as many gigabytes. So no more is decompressed than a file of its
size plausibly holds (``max_content_bytes``), and only a part of it at once.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

PIECE_BYTES = 1 << 20
"""Usual size of the pieces that a file is read in."""

STEP_BYTES = {".gz": 1 << 12, ".xz": 1 << 12, ".zst": 64}
"""Size of the compressed data that is decompressed at once, by suffix. What precedes damage in the
same step is lost, and with it what a decompressor makes of damaged data before it notices: that
would be taken for sound in smaller steps. zstd has no limit of its own, and four bytes of it give
128 KiB, so its steps give 2 MiB at most."""

MIN_LIMIT_BYTES = 2**26
MAX_RATIO = 300
"""xz, which compresses most, reduces logs to a 4th to a 30th of their size, and the log of an idle
client to a 150th. It reduces blanks and zeros to a 1,000th or less."""

XZ_MEMORY_BYTES = 2**28
"""The most memory that an xz file may need. ``xz -9`` needs a quarter of it. zstd's own limit is
half of it."""

DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES),
    ".zst": lambda: zstandard.ZstdDecompressor().decompressobj(),
}
"""Suffix of a file name -> a function that returns a decompressor of one stream."""

_GZIP_STREAM = type(zlib.decompressobj())
_ERRORS = (zlib.error, lzma.LZMAError, zstandard.ZstdError)


class DamagedError(ValueError):
    """The compressed data is damaged or ends early. The content before that is sound."""


class TooLargeError(ValueError):
    """A file holds more than is read of such a file."""


def max_content_bytes(file_bytes: int) -> int:
    """Return how much a compressed file may hold: 64 MiB, or 300 times its size if that is more."""
    return max(MIN_LIMIT_BYTES, MAX_RATIO * file_bytes)


def require_size(size_bytes: int, max_bytes: int) -> None:
    """Raise TooLargeError if a size is more than ``max_bytes``."""
    if size_bytes > max_bytes:
        raise TooLargeError(f"it holds more than {max_bytes / 2**20:g} MiB, the limit for its size")


def pieces(file: BinaryIO, suffix: str, max_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the content of a file in pieces of some MiB at most.

    Args:
        file: The file, opened for reading bytes.
        suffix: The suffix of its name. If it is not in ``DECOMPRESSORS``, the file is not
            compressed.
        max_bytes: How much it may hold. Default: ``max_content_bytes`` for a compressed file, and
            no limit for another one.

    Raises:
        DamagedError: The compressed data is damaged or ends early.
        TooLargeError: The file holds more than ``max_bytes``.
    """
    make = DECOMPRESSORS.get(suffix)
    if make is None:
        parts = iter(lambda: file.read(PIECE_BYTES), b"")
    else:
        parts = _decompress(file, make, STEP_BYTES[suffix])
        max_bytes = max_bytes or max_content_bytes(_size(file))
    total = 0
    piece = bytearray()
    try:
        for part in parts:
            total += len(part)
            if max_bytes is not None:
                require_size(total, max_bytes)
            piece += part
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
    except DamagedError:
        yield bytes(piece)
        raise
    if piece:
        yield bytes(piece)


def read_content(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file, which is decompressed if its suffix is in ``DECOMPRESSORS``.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It is damaged, or not compressed as its name says.
        TooLargeError: It holds more than ``max_bytes`` or ``max_content_bytes``.
    """
    with path.open("rb") as file:
        if path.suffix in DECOMPRESSORS:
            max_bytes = min(max_bytes, max_content_bytes(_size(file)))
        return b"".join(pieces(file, path.suffix, max_bytes))


def _size(file: BinaryIO) -> int:
    size_bytes = file.seek(0, 2)
    file.seek(0)
    return size_bytes


def _decompress(file: BinaryIO, make: Callable[[], Any], step_bytes: int) -> Iterator[bytes]:
    """Yield the content of all streams of a compressed file. Logs that were appended have many."""
    stream, is_empty = make(), True
    while data := file.read(step_bytes):
        is_empty = False
        while data:
            if stream.eof:
                stream = make()
            try:
                yield from _feed(stream, data)
            except _ERRORS as error:
                raise DamagedError(f"compressed data is damaged ({error})") from None
            data = stream.unused_data if stream.eof else b""
    if not is_empty and not stream.eof:
        raise DamagedError("compressed data ends early")


def _feed(stream: Any, data: bytes) -> Iterator[bytes]:
    """Yield the content of a step in parts of some MiB at most: one of xz can have 28 MiB."""
    if isinstance(stream, lzma.LZMADecompressor):
        yield stream.decompress(data, PIECE_BYTES)
        while not (stream.eof or stream.needs_input):
            yield stream.decompress(b"", PIECE_BYTES)
    elif isinstance(stream, _GZIP_STREAM):
        while data and not stream.eof:
            yield stream.decompress(data, PIECE_BYTES)
            data = stream.unconsumed_tail
    else:
        yield stream.decompress(data)
