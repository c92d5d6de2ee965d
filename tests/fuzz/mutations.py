"""Ways to damage a file: its bytes, its values, its names."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

DIGITS = re.compile(rb"\d+")

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


def deep(depth: int, item: Any = 0) -> Any:
    """Lists in lists."""
    for _ in range(depth):
        item = [item]
    return item


def changed_bytes(draw: Draw, data: bytes) -> bytes:
    """One to four edits anywhere."""
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
            # The next number is another one.
            if found := DIGITS.search(data, begin):
                begin, end = found.span()
                part = draw(st.sampled_from(SNIPPETS))
        case 6:
            end = len(data)
        case 7:
            # What stands somewhere stands somewhere else as well.
            other = draw(st.integers(0, len(data)))
            part = data[other : other + 200]
    return data[:begin] + part + data[end:]


def changed_json(draw: Draw, value: Any) -> Any:
    """Another value somewhere, a key less, a key twice or under another name."""
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
            return deep(draw(st.sampled_from((3, 60, 190, 250))), value)
        case 3:
            return [value] * draw(st.sampled_from((0, 2, 1000)))
    # A list of theirs may be changed in turn, and the next input has to get it as it was.
    return copy.deepcopy(draw(st.sampled_from(VALUES)))


def json_bytes(draw: Draw, value: Any) -> bytes:
    """The value as a file, and now and then its bytes damaged in turn."""
    try:
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):
        data = b"[" * 100_000
    return changed_bytes(draw, data) if draw(st.integers(0, 7)) == 0 else data
