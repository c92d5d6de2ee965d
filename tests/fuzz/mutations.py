"""Ways to damage a file: in its bytes, its values or its names."""

from __future__ import annotations

import copy
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

DIGITS = re.compile(rb"\d+")
MEMBER = re.compile(rb'"[^"]{1,40}": ([^][{},"]+|"[^"]*"),')

# fmt: off
SNIPPETS = (
    b"", b"\0", b"\n", b"\r", b" ", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1b[2J",
    b"[", b"]", b"{", b"}", b"(", b'"', b"'", b",", b":", b"=", b"\\", b"/", b"../", b"%s", b"*",
    b"-", b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"null", b"true", b"0x7f", b"1.5",
    b"2147483648", b"9223372036854775808", b"999999", b"9" * 30, b"9" * 5000, b"0" * 20,
    b"<script>", b"&amp;", b"$(true)", b"`true`",
    b"[" * 5000, b"{" * 300, b"a" * 70_000, b"\n" * 9999,
)

NAMES = (
    "", " ", ".", "..", "../..", "/", "/dev/null", "/proc/self/mem", "/etc/passwd", "-", "--help",
    "~", "a" * 255, "a" * 256, "a" * 5000, "a/" * 3000, "\n", "a\nb", "\t", "*", "?",
    "quick:", ":quick", "a:b:c", "x.tar.xz", "x.tar.xz:a:b", "x.yaml", "./x.yaml", "x.tar.xz:",
    "$(touch x)", "`touch x`", '"; touch x; "', "' OR 1", "%00", "%s%n", "{0}", "{x}", "[x]",
    "Zürich", "日本", "\u202e", "\ufeff", "\U0001f9c5", "\x1b[31m", "nan", "inf", "1e999",
    "9" * 5000, "<script>alert(1)</script>",
)
# fmt: on

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 10**400, 0.5, -0.0, 1e308),
    *(float("nan"), float("inf"), float("-inf"), 5e-324, [], {}, "", [[]], {"": {}}),
    *NAMES,
)


def changed_bytes(draw: Draw, data: bytes) -> bytes:
    """Return the bytes after one to four edits at random positions."""
    for _ in range(draw(st.integers(1, 4))):
        data = _edit(draw, data)
    return data


def _edit(draw: Draw, data: bytes) -> bytes:
    begin = draw(st.integers(0, len(data)))
    end = min(len(data), begin + draw(st.sampled_from((0, 1, 2, 8, 64, 1024))))
    part = data[begin:end]
    match draw(st.integers(0, 7)):
        case 0:
            part = draw(st.sampled_from(SNIPPETS))
        case 1:
            part += draw(st.sampled_from(SNIPPETS))
        case 2:
            part = draw(st.binary(max_size=8))
        case 3:
            part = bytes(byte ^ (1 << draw(st.integers(0, 7))) for byte in part[:4]) + part[4:]
        case 4:
            part *= draw(st.sampled_from((0, 2, 3, 50)))
        case 5:
            # Replace the next number.
            if found := DIGITS.search(data, begin):
                begin, end = found.span()
                part = draw(st.sampled_from(SNIPPETS))
        case 6:
            end = len(data)
        case 7:
            # Replace the part by bytes from another position.
            other = draw(st.integers(0, len(data)))
            part = data[other : other + 200]
    return data[:begin] + part + data[end:]


def changed_json(draw: Draw, value: Any) -> Any:
    """Return a copy of a JSON value with one to three changes.

    A change is another value, a missing or renamed key, or a missing or repeated element.
    """
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        value = _replace(draw, value)
    return value


def _replace(draw: Draw, value: Any) -> Any:
    if isinstance(value, dict | list) and value and draw(st.integers(0, 9)):
        key = (
            draw(st.sampled_from(list(value)))
            if isinstance(value, dict)
            else draw(st.integers(0, len(value) - 1))
        )
        match draw(st.integers(0, 11)):
            case 0:
                del value[key]
            case 1 if isinstance(value, dict):
                value[draw(st.sampled_from(NAMES))] = value.pop(key)
            case 1 if isinstance(value, list):
                value.append(value[key])
            case _:
                value[key] = _replace(draw, value[key])
        return value
    match draw(st.integers(0, 9)):
        case 0:
            return draw(st.text(max_size=8))
        case 1:
            return draw(st.integers() | st.floats())
        case 2:
            for _ in range(draw(st.sampled_from((3, 60, 190, 250)))):
                value = [value]
            return value
        case 3:
            return [value] * draw(st.sampled_from((0, 2, 1000)))
    # The result is a copy, since a later edit may change it and VALUES must stay the same.
    return copy.deepcopy(draw(st.sampled_from(VALUES)))


def json_bytes(draw: Draw, value: Any) -> bytes:
    """Return a JSON value as a file's bytes. Sometimes repeat a member, or damage the bytes."""
    try:
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):
        data = b"[" * 100_000
    how = draw(st.integers(0, 11))
    if how == 0:
        return changed_bytes(draw, data)
    members = list(MEMBER.finditer(data)) if how == 1 else []
    if members:
        # Copy a random member to another place. If this is in the same object, a key occurs twice.
        at = draw(st.sampled_from(members)).start()
        again: bytes = draw(st.sampled_from(members))[0]
        data = data[:at] + again + data[at:]
    return data


NUMBERS = (0, 1, -1, 2, 10**6, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63))
# fmt: off
FLOATS = (
    *(float("nan"), float("inf"), float("-inf"), -0.0, -1.0, -1e-9, 5e-324, 0.5, 1e6, 1e11, 1e12),
    *(1e18, 1e308, -1e308),
)
# fmt: on


def changed_table(draw: Draw, table: pa.Table) -> bytes:
    """Return a table as a Parquet file, after changes of its values, rows or columns.

    In one of eight cases the bytes of the file are damaged, too.
    """
    for _ in range(draw(st.integers(1, 3))):
        try:
            table = _change(draw, table)
        # Skip a change that is impossible, for example if its value does not fit the column's type.
        except (pa.ArrowException, OverflowError, ValueError):
            continue
    data = io.BytesIO()
    pq.write_table(
        table,
        data,
        compression=draw(st.sampled_from(("zstd", "none", "snappy"))),
        use_dictionary=draw(st.booleans()),
        store_schema=draw(st.integers(0, 5)) > 0,
        data_page_version=draw(st.sampled_from(("1.0", "2.0"))),
        row_group_size=draw(st.sampled_from((1, 100, 1 << 20))) if table.num_rows < 5000 else None,
    )
    return changed_bytes(draw, data.getvalue()) if draw(st.integers(0, 7)) == 0 else data.getvalue()


def _change(draw: Draw, table: pa.Table) -> pa.Table:
    if not table.num_columns:
        return table
    place = draw(st.integers(0, table.num_columns - 1))
    field, column = table.schema.field(place), table.column(place)
    rows = st.integers(0, max(0, table.num_rows - 1))
    match draw(st.integers(0, 9)):
        case 0:
            return table.remove_column(place)
        case 1:
            return table.append_column(draw(st.sampled_from(("more", field.name))), column)
        case 2:
            other = table.column(draw(st.integers(0, table.num_columns - 1)))
            return table.set_column(place, field.with_type(other.type), other)
        case 3:
            kind = draw(st.sampled_from((pa.string(), pa.float32(), pa.int8(), pa.int64())))
            return table.set_column(place, field.with_type(kind), column.cast(kind, safe=False))
        case 4:
            return table.slice(draw(rows), draw(st.sampled_from((0, 1, 10))))
        case 5:
            return table.take(draw(st.lists(rows, max_size=20)) if table.num_rows else [])
    values = column.to_pylist()
    if not values:
        return table
    row = draw(rows)
    changed = _value(draw, field.type, values[row])
    values = [changed] * len(values) if draw(st.booleans()) else values
    values[row] = changed
    return table.set_column(place, field, pa.array(values, field.type))


def _value(draw: Draw, kind: pa.DataType, value: Any) -> Any:
    """Return another value of the type ``kind``, or None."""
    if draw(st.integers(0, 5)) == 0:
        return None
    if pa.types.is_list(kind):
        value = value or []
        of_list = [_value(draw, kind.value_type, None)]
        return draw(st.sampled_from(([], value[1:], value + of_list, of_list * 3, value * 2)))
    if pa.types.is_floating(kind):
        return draw(st.sampled_from(FLOATS) | st.floats())
    if pa.types.is_integer(kind):
        return draw(st.sampled_from(NUMBERS))
    if pa.types.is_boolean(kind):
        return draw(st.booleans())
    return draw(st.sampled_from(NAMES))
