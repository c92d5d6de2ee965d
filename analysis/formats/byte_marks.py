"""Byte marks: amounts of payload for which records, metrics and figures have times of arrival.

columns.csv lists the marks: a column with the flag ``at=N`` has the time until N bytes arrived.
This module imports no slow packages, because the check of experiment files uses it.
"""

from __future__ import annotations

import csv
from pathlib import Path

with Path(__file__).with_name("columns.csv").open(newline="", encoding="utf-8") as _file:
    COLUMN_ROWS = tuple(csv.DictReader(_file))
"""The rows of columns.csv."""


def _marks(table: str) -> dict[str, int]:
    """Return name of a column -> byte mark in bytes, for the table's columns with a byte mark."""
    return {
        row["name"]: int(flag.removeprefix("at="))
        for row in COLUMN_ROWS
        for flag in row["flags"].split()
        if row["table"] == table and flag.startswith("at=")
    }


BYTE_MARKS = _marks("streams")
"""Column of ``streams`` -> the payload in bytes whose time of arrival the column has."""
CODED_MARKS = {size: column for column, size in _marks("coded_streams").items()}
"""Payload in bytes -> the column of ``coded_streams`` that encodes its time of arrival."""
PERF_MARKS = _marks("perf")
"""Column of ``perf`` -> the payload in bytes whose time of arrival the column has.

``at_4mib_s`` is the time of the smallest payload that TGen prints as 80.00% of 5 MiB: tgentools
records no time for 4 MiB, so tornettools uses the time of 80%.
"""
MARK_BYTES = tuple(sorted({1, *BYTE_MARKS.values(), *PERF_MARKS.values()}))
"""Payloads in bytes whose times of arrival are read from logs. The payload 1 is the first byte."""

MARK_FIGURES = {
    f"ttfb-{column.removeprefix('time_to_').removesuffix('_s')}": size
    for column, size in BYTE_MARKS.items()
}
"""Kind of figure -> a byte mark. The figure shows the times to the first byte and to this mark."""


def format_size(size_bytes: int) -> str:
    """Return a size in the largest unit that gives a whole number, as a string such as "5 MiB"."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"
