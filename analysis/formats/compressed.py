"""Read files that are compressed with gzip, xz or zstd, in bounded memory.

A file of a few kilobytes can expand to gigabytes. Therefore files are decompressed in steps, and
only up to a plausible size (``max_content_bytes``).
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

PIECE_BYTES = 1 << 20
"""Usual size of the pieces in which a file is read."""

STEP_BYTES = {".gz": 1 << 12, ".xz": 1 << 12, ".zst": 64}
"""Suffix of a file name -> compressed bytes per decompression step.

The size is a compromise. If a call of a decompressor detects damage, its output is lost: a whole
step of zstd, or at most 1 MiB of gzip or xz. So large steps lose valid bytes before the damage.
Small steps accept wrong bytes, because a decompressor may detect the damage after it returned them.
zstd returns the whole output of a step at once, and four bytes can expand to 128 KiB, so 64 bytes
give at most 2 MiB.
"""

MIN_LIMIT_BYTES = 2**26
MAX_RATIO = 300
"""Maximum ratio of content to file size. xz compresses most: logs shrink to between 1/4 and 1/30,
and an idle client's log shrinks to 1/150. A file of blanks or zeros shrinks to 1/1,000 or less, and
is rejected if its content exceeds ``MIN_LIMIT_BYTES``."""

XZ_MEMORY_BYTES = 2**28
"""Maximum memory for decoding an xz file. A file from ``xz -9`` needs a quarter of this limit. The
default limit of zstd is half as large."""

DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES),
    ".zst": lambda: zstandard.ZstdDecompressor().decompressobj(),
}
"""Suffix of a file name -> a function that returns a decompressor of one stream."""

_GZIP_STREAM = type(zlib.decompressobj())
_ERRORS = (zlib.error, lzma.LZMAError, zstandard.ZstdError)


class DamagedError(ValueError):
    """The compressed data is damaged or ends early. The content before the damage is valid."""


class TooLargeError(ValueError):
    """A file exceeds the maximum size of its content."""


def max_content_bytes(file_bytes: int) -> int:
    """Return the maximum size of a compressed file's content."""
    return max(MIN_LIMIT_BYTES, MAX_RATIO * file_bytes)


def require_size(size_bytes: int, max_bytes: int) -> None:
    """Raise TooLargeError if a size is more than ``max_bytes``."""
    if size_bytes > max_bytes:
        raise TooLargeError(f"it holds more than {max_bytes / 2**20:g} MiB, the limit for its size")


def pieces(file: BinaryIO, suffix: str, max_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the content of a file in pieces of at most a few MiB.

    Args:
        file: The file, opened for reading bytes.
        suffix: The suffix of the file's name. If it is not in ``DECOMPRESSORS``, the file is not
            compressed.
        max_bytes: Maximum size of the content. Default: ``max_content_bytes`` for a compressed
            file, and no limit otherwise.

    Raises:
        DamagedError: The compressed data is damaged or ends early. The content before the damage
            has been yielded.
        TooLargeError: The content exceeds ``max_bytes``.
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
    """Return the content of a file, decompressed if the suffix is in ``DECOMPRESSORS``.

    Raises:
        OSError: The file cannot be read.
        DamagedError: The file is damaged, or its format does not match its suffix.
        TooLargeError: The content exceeds ``max_bytes`` or, if compressed, ``max_content_bytes``.
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
    """Yield the content of a compressed file.

    The file has several compressed streams if content was appended to it.
    """
    stream = None
    while data := file.read(step_bytes):
        while data:
            if stream is None or stream.eof:
                stream = make()
            try:
                yield from _feed(stream, data)
            except _ERRORS as error:
                raise DamagedError(f"compressed data is damaged ({error})") from None
            data = stream.unused_data if stream.eof else b""
    if stream is not None and not stream.eof:
        raise DamagedError("compressed data ends early")


def _feed(stream: Any, data: bytes) -> Iterator[bytes]:
    """Decompress ``data``, which xz can expand to 28 MiB. Yield parts of at most a few MiB."""
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
