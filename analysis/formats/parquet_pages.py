"""Bound the memory that a Parquet file needs, before any of it is unpacked.

Arrow allocates what the header of each page asks for, and what its encoding makes of that. A file
of 50 kB can ask for many gigabytes. The footer says sizes as well, but nothing compares them with
the pages. PyArrow's own access to the footer ends the process for some damaged ones, because it
does not catch Arrow's exceptions. So the footer and the headers are read here. They are structs of
Thrift's compact protocol:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md and
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

MAX_DEPTH = 12
"""How deep structs and lists of a footer are nested, and more."""

ENDING_BYTES = 8
"""Size of what follows the footer: its length in four bytes, and "PAR1"."""

_Struct = dict[int, Any]


def require_plausible(path: Path) -> None:
    """Check how much the columns of a file hold, whose ending Arrow has read.

    Raises:
        TooLargeError: more than a file of its size plausibly holds.
        ValueError: the footer or a page's header is damaged, a page's encoding is none of
            ``ENCODINGS``, or there are more than ``MAX_PAGES``.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        most = most_bytes(len(data))
        require_size(_memory_bytes(data), most)


def _memory_bytes(data: mmap.mmap) -> int:
    unpacked_bytes = values = pages = 0
    end = len(data) - ENDING_BYTES
    footer, _ = _struct(data, end - int.from_bytes(data[end : end + 4], "little"))
    for group in _structs(footer, 4):
        for chunk in _structs(group, 1):
            column = chunk.get(3)
            if not isinstance(column, dict):
                raise _damaged()
            in_pages = 0
            for size_bytes, count in _pages(data, column):
                unpacked_bytes += size_bytes
                in_pages += count
                pages += 1
                if pages > MAX_PAGES:
                    raise ValueError(f"it has more than {MAX_PAGES} pages")
            values += max(_count(column, 5), _count(group, 3), in_pages)
    return max(unpacked_bytes, values * VALUE_BYTES)


def _pages(data: mmap.mmap, column: _Struct) -> Iterator[tuple[int, int]]:
    """Yield the unpacked size in bytes and the number of values of each page of a column chunk."""
    if not _count(column, 5):
        # Arrow reads no page then, and there may be none.
        return
    begin = _count(column, 9)
    if 11 in column and 0 < _count(column, 11) < begin:
        begin = _count(column, 11)
    end = begin + _count(column, 7)
    if end > len(data):
        raise ValueError("a column is outside of the file")
    while begin < end:
        header, begin = _struct(data, begin)
        kind = PAGE_KINDS.get(_count(header, 1), -1)
        page = header.get(kind)
        if not isinstance(page, dict):
            raise _damaged()
        encoding = _count(page, 4 if kind == 8 else 2)
        if encoding not in ENCODINGS:
            raise ValueError(f"a page has the encoding {encoding}")
        yield _count(header, 2), _count(page, 1)
        begin += _count(header, 3)


def _structs(struct: _Struct, number: int) -> list[_Struct]:
    """Return a field that is a list of structs. Raises ValueError if it is not."""
    value = struct.get(number)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise _damaged()
    return value


def _count(struct: _Struct, number: int) -> int:
    """Return a field that is a number and not negative. Raises ValueError if it is not."""
    value = struct.get(number)
    if not isinstance(value, int) or value < 0:
        raise _damaged()
    return value


def _damaged() -> ValueError:
    return ValueError("its footer or a page's header is damaged")


def _struct(data: mmap.mmap, at: int, depth: int = 0) -> tuple[_Struct, int]:
    """Read a struct: number of a field -> integer, boolean, list or struct; and where it ends."""
    fields: _Struct = {}
    number = 0
    while head := _byte(data, at):
        at += 1
        step, kind = head >> 4, head & 15
        # No program writes the long form of a field's number, by which numbers may go back.
        if not step:
            raise _damaged()
        number += step
        if kind in (1, 2):
            fields[number] = kind == 1
        else:
            fields[number], at = _value(data, at, kind, depth + 1)
    return fields, at + 1


def _value(data: mmap.mmap, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Read a value of a type, and where it ends; texts and floating-point numbers are None."""
    if depth > MAX_DEPTH:
        raise _damaged()
    match kind:
        case 1 | 2 | 3:
            return None, at + 1
        case 4 | 5 | 6:
            value, at = _integer(data, at)
            return (value >> 1) ^ -(value & 1), at
        case 7:
            return None, at + 8
        case 8:
            length, at = _integer(data, at)
            return None, at + length
        case 9:
            head = _byte(data, at)
            length, at = _integer(data, at + 1) if head >> 4 == 15 else (head >> 4, at + 1)
            if length > len(data):
                raise _damaged()
            items = []
            for _ in range(length):
                item, at = _value(data, at, head & 15, depth + 1)
                items.append(item)
            return items, at
        case 12:
            return _struct(data, at, depth)
        case _:
            raise _damaged()


def _integer(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Read an integer in groups of seven bits, lowest first; and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = _byte(data, at)
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _damaged()


def _byte(data: mmap.mmap, at: int) -> int:
    if not 0 <= at < len(data):
        raise _damaged()
    return data[at]
