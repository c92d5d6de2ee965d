"""Reject Parquet files whose columns need too much memory, before Arrow reads a column.

Arrow allocates the size in each page's header, and a file of 50 kB can declare gigabytes. The sizes
in the footer are not reliable, because nothing compares them with the pages. PyArrow's access to
the footer can end the process if a file is damaged, because it does not catch all of Arrow's
exceptions. So this module parses the footer and the page headers itself. They are structs of
Thrift's compact protocol:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md and
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.formats.compressed import max_content_bytes, require_size

VALUE_BYTES = 8
"""Assumed size of a value in memory."""

ENCODINGS = {0, 2, 3, 5, 8, 9}
"""Accepted encodings: PLAIN, both dictionary encodings, RLE, DELTA_BINARY_PACKED and
BYTE_STREAM_SPLIT. Other encodings can repeat the previous string with almost no bytes, so that the
size of a page would say little about the memory that the page needs."""

MAX_PAGES = 1_000_000
"""Maximum number of pages in a file.

A billion rows need fewer pages, and the headers of this many pages are read in seconds.
"""

PAGE_HEADERS = {0: 5, 2: 7, 3: 8}
"""Type of a page -> number of the field in Thrift's PageHeader that describes such a page:
DataPageHeader, DictionaryPageHeader or DataPageHeaderV2."""

ENDING_BYTES = 8
"""Size of the bytes after the footer: the footer's length in four bytes, and "PAR1"."""


def require_plausible(path: Path) -> None:
    """Check how much memory a file's columns need.

    Call this only after Arrow has checked the end of the file.

    Raises:
        TooLargeError: The columns need more memory than is plausible for a file of this size.
        ValueError: The footer or a page header is damaged, a page has an encoding that is not in
            ``ENCODINGS``, or there are more than ``MAX_PAGES``.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            memory_bytes = _memory_bytes(data)
        except (LookupError, TypeError, AttributeError, RecursionError):
            raise ValueError("its footer or a page's header is damaged") from None
        require_size(memory_bytes, max_content_bytes(len(data)))


def _memory_bytes(data: mmap.mmap) -> int:
    """Return the bytes of memory that all columns need.

    A struct is a dictionary whose keys are the numbers of the fields in parquet.thrift.
    """
    page_bytes = values = pages = 0
    end = len(data) - ENDING_BYTES
    footer = _Reader(data, end - int.from_bytes(data[end : end + 4], "little")).read_struct()
    for row_group in footer[4]:
        for chunk in row_group[1]:
            values_of_chunk = 0
            for uncompressed_bytes, count in _pages(data, chunk[3]):
                page_bytes += uncompressed_bytes
                values_of_chunk += count
                pages += 1
                if pages > MAX_PAGES:
                    raise ValueError(f"it has more than {MAX_PAGES} pages")
            values += max(_count(chunk[3][5]), _count(row_group[3]), values_of_chunk)
    return max(page_bytes, values * VALUE_BYTES)


def _pages(data: mmap.mmap, column: dict[int, Any]) -> Iterator[tuple[int, int]]:
    """Yield the uncompressed size in bytes and the number of values of each page of a column."""
    if not _count(column[5]):
        # A column without values may lack its pages, and Arrow does not read pages of such columns.
        return
    data_page, dictionary_page = _count(column[9]), _count(column.get(11, 0))
    begin = dictionary_page if 0 < dictionary_page < data_page else data_page
    end = begin + _count(column[7])
    if end > len(data):
        raise ValueError("a column is outside of the file")
    while begin < end:
        reader = _Reader(data, begin)
        header = reader.read_struct()
        number = PAGE_HEADERS[header[1]]
        page = header[number]
        encoding = page[4 if number == 8 else 2]
        if encoding not in ENCODINGS:
            raise ValueError(f"a page has the encoding {encoding}")
        yield _count(header[2]), _count(page[1])
        begin = reader.position + _count(header[3])


def _count(value: int) -> int:
    if value < 0:
        raise LookupError
    return value


class _Reader:
    """Parses Thrift structs. Raises LookupError for invalid data."""

    def __init__(self, data: mmap.mmap, position: int) -> None:
        self.data = data
        self.position = _count(position)

    def read_struct(self) -> dict[int, Any]:
        """Return a struct as a dict: number of a field -> the field's value.

        Strings, bytes and floating-point numbers are skipped; their value in the dict is None.
        """
        fields: dict[int, Any] = {}
        number = 0
        while head := self._read_byte():
            # Reject the long form of a field's header, which no program uses.
            if head < 16:
                raise LookupError
            number += head >> 4
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._read_value(kind)
        return fields

    def _read_value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                self._skip(1)
            case 4 | 5 | 6:
                value = self._read_integer()
                return (value >> 1) ^ -(value & 1)
            case 7:
                self._skip(8)
            case 8:
                self._skip(self._read_integer())
            case 9:
                head = self._read_byte()
                length = self._read_integer() if head >> 4 == 15 else head >> 4
                return [self._read_value(head & 15) for _ in range(length)]
            case 12:
                return self.read_struct()
            case _:
                raise LookupError
        return None

    def _read_integer(self) -> int:
        """Return an integer that is stored in groups of seven bits, the lowest bits first."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self._read_byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise LookupError

    def _read_byte(self) -> int:
        byte = self.data[self.position]
        self.position += 1
        return byte

    def _skip(self, count: int) -> None:
        self.position += count
        if self.position > len(self.data):
            raise LookupError
