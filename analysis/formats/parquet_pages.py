"""Bound the memory that a Parquet file needs, before any of it is unpacked.

Arrow allocates what the header of each page asks for, and what its encoding makes of that. A file
of 50 kB can ask for many gigabytes. The footer says sizes as well, but nothing compares them with
the pages. So the headers are read here. They are structs of Thrift's compact protocol:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md and
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.formats.compressed import most_bytes, require_size

VALUE_BYTES = 8
"""Size of a value in memory."""

ENCODINGS = {0, 2, 3, 5, 8, 9}
"""PLAIN, the two of dictionaries, RLE, DELTA_BINARY_PACKED, BYTE_STREAM_SPLIT. In the others a text
repeats the one before at no cost."""

MAX_PAGES = 1_000_000
"""Most pages in the columns that are read: enough for a billion rows, and read in seconds."""

PAGE_KINDS = {0: 5, 2: 7, 3: 8}
"""Type of a page -> field of its header: DataPageHeader, DictionaryPageHeader, DataPageHeaderV2."""

MAX_DEPTH = 3
"""How deep structs of a page's header are nested."""

_Struct = dict[int, Any]


def require_plausible(path: Path, metadata: pq.FileMetaData, names: Collection[str]) -> None:
    """Check how much the columns of these names hold.

    Raises:
        TooLargeError: more than a file of its size plausibly holds.
        ValueError: a page's header is damaged, its encoding is none of ``ENCODINGS``, or there are
            more than ``MAX_PAGES``.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        most = most_bytes(len(data))
        require_size(_memory_bytes(data, metadata, names), most)


def _memory_bytes(data: mmap.mmap, metadata: pq.FileMetaData, names: Collection[str]) -> int:
    unpacked_bytes = values = pages = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.path_in_schema.partition(".")[0] not in names:
                continue
            in_pages = 0
            for size_bytes, count in _pages(data, chunk):
                unpacked_bytes += size_bytes
                in_pages += count
                pages += 1
                if pages > MAX_PAGES:
                    raise ValueError(f"it has more than {MAX_PAGES} pages")
            values += max(chunk.num_values, group.num_rows, in_pages)
    return max(unpacked_bytes, values * VALUE_BYTES)


def _pages(data: mmap.mmap, chunk: pq.ColumnChunkMetaData) -> Iterator[tuple[int, int]]:
    """Yield the unpacked size in bytes and the number of values of each page of a column chunk."""
    if chunk.num_values <= 0:
        # Arrow reads no page then, and there may be none.
        return
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
        begin = chunk.dictionary_page_offset
    end = begin + chunk.total_compressed_size
    if not 0 <= begin <= end <= len(data):
        raise ValueError("a column is outside of the file")
    while begin < end:
        header, begin = _struct(data, begin)
        kind = PAGE_KINDS.get(_count(header, 1), -1)
        page = header.get(kind)
        if not isinstance(page, dict):
            raise ValueError("a page's header is damaged")
        encoding = _count(page, 4 if kind == 8 else 2)
        if encoding not in ENCODINGS:
            raise ValueError(f"a page has the encoding {encoding}")
        yield _count(header, 2), _count(page, 1)
        begin += _count(header, 3)


def _count(struct: _Struct, number: int) -> int:
    """Return a field that is a number and not negative. Raises ValueError if it is not."""
    value = struct.get(number)
    if not isinstance(value, int) or value < 0:
        raise ValueError("a page's header is damaged")
    return value


def _struct(data: mmap.mmap, at: int, depth: int = 0) -> tuple[_Struct, int]:
    """Read a struct: number of a field -> integer, boolean or struct; and where it ends."""
    fields: _Struct = {}
    number = 0
    while head := _byte(data, at):
        at += 1
        step, kind = head >> 4, head & 15
        # No program writes the long form of a field's number, by which numbers may go back.
        if not step or depth == MAX_DEPTH:
            raise ValueError("a page's header is damaged")
        number += step
        match kind:
            case 1 | 2:
                fields[number] = kind == 1
            case 3:
                at += 1
            case 4 | 5 | 6:
                value, at = _integer(data, at)
                fields[number] = (value >> 1) ^ -(value & 1)
            case 7:
                at += 8
            case 8:
                length, at = _integer(data, at)
                at += length
            case 12:
                fields[number], at = _struct(data, at, depth + 1)
            case _:
                raise ValueError("a page's header is damaged")
    return fields, at + 1


def _integer(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Read an integer in groups of seven bits, lowest first; and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = _byte(data, at)
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a page's header is damaged")


def _byte(data: mmap.mmap, at: int) -> int:
    if at >= len(data):
        raise ValueError("a page's header is cut")
    return data[at]
