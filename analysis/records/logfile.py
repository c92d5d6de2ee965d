"""Reads a log as lines of bytes, whatever it is compressed with, and survives a cut file."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import zstandard

CHUNK_BYTES = 1 << 20

PACKED_BYTES = 1 << 12
"""How much compressed data is taken at once: that much is lost where it turns out to be damaged."""


class _Decompressor(Protocol):
    """What zlib, lzma and zstandard decompressor objects have in common."""

    def decompress(self, data: bytes, /) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),
    ".xz": lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ),
    ".zst": lambda: zstandard.ZstdDecompressor().decompressobj(),
}


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
        """Yields lists of whole lines without their newline, about 1 MiB at a time."""
        rest = b""
        for chunk in self._chunks():
            self.bytes_read += len(chunk)
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if lines:
                yield lines
        self.tail = rest

    def _chunks(self) -> Iterator[bytes]:
        make = DECOMPRESSORS.get(self.path.suffix)
        with self.path.open("rb") as file:
            if make is None:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
                return
            # A compressed file may be several streams one after the other (appended logs).
            decompressor = make()
            fresh = True
            while data := file.read(PACKED_BYTES):
                while data:
                    if decompressor.eof:
                        decompressor = make()
                    fresh = False
                    try:
                        chunk = decompressor.decompress(data)
                    except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
                        self.damage = f"compressed data is damaged ({error})"
                        return
                    if chunk:
                        yield chunk
                    data = decompressor.unused_data if decompressor.eof else b""
            if not fresh and not decompressor.eof:
                self.damage = "compressed data ends early"
