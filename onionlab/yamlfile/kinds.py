"""The kinds of scalar value in a file: parsing, JSON Schema and reference of each.

A kind stands in a model field's annotation (``Annotated[int, SIZE]``). It parses what the YAML
holds into base units, names what it expects when it refuses, and describes itself for the JSON
Schema and for the reference of keys, so the three cannot disagree.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from onionlab.yamlfile import units
from onionlab.yamlfile.units import show


@dataclass(frozen=True)
class Kind:
    """One kind of value.

    noun: for the reference ("size", "time"); expected: for messages ('a size such as "320 KiB"');
    parse: raises ValueError with a whole sentence; schema: its JSON Schema.
    """

    noun: str
    expected: str
    parse: Callable[[object], Any]
    schema: dict[str, Any] = field(hash=False)
    check_item: Callable[[str, object], str | None] | None = None
    """For mappings handed on to another program: what is wrong with one key and its value."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic call :attr:`parse` and nothing else."""
        return core_schema.no_info_plain_validator_function(self.parse)


LONGEST_GUESS = 100
"""Of a longer word nobody means another one, and to look for it takes long."""


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """``; did you mean "X"?`` for the nearest known name, or nothing."""
    if len(word) > LONGEST_GUESS:
        return ""
    by_letters = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(word.casefold(), list(by_letters), n=1, cutoff=cutoff)
    return f'; did you mean "{by_letters[close[0]]}"?' if close else ""


def _quantity_pattern(unit_names: Iterable[str]) -> str:
    names = "|".join(re.escape(unit) for unit in unit_names)
    return rf"^\s*[0-9]+(\.[0-9]+)?\s*({names})\s*$"


def size() -> Kind:
    """A positive size in bytes."""
    return Kind(
        "size",
        'a size such as "320 KiB"',
        units.parse_size,
        {"type": "string", "pattern": _quantity_pattern(units.SIZE_UNITS)},
    )


def automatic_size() -> Kind:
    """A positive size in bytes, or the word automatic (None): the program chooses."""

    def parse(value: object) -> int | None:
        return None if value == "automatic" else units.parse_size(value)

    return Kind(
        "size or automatic",
        'a size such as "2 GiB", or automatic',
        parse,
        {
            "anyOf": [
                {"const": "automatic"},
                {"type": "string", "pattern": _quantity_pattern(units.SIZE_UNITS)},
            ]
        },
    )


_TIME_SCHEMA = {"type": "string", "pattern": _quantity_pattern(units.TIME_UNITS)}


def time(*, positive: bool = False) -> Kind:
    """A time in seconds."""
    return Kind(
        "time, more than 0" if positive else "time",
        'a time such as "60 s"',
        lambda value: units.parse_time(value, positive=positive),
        _TIME_SCHEMA,
    )


def optional_time() -> Kind:
    """A positive time in seconds, or the word none."""

    def parse(value: object) -> float | None:
        if value == "none":
            return None
        return units.parse_time(value, positive=True)

    return Kind(
        "time, more than 0, or none",
        'a time such as "60 s", or none',
        parse,
        {"anyOf": [{"const": "none"}, _TIME_SCHEMA]},
    )


def time_span() -> Kind:
    """Two times [low, high], low <= high, in seconds."""
    expected = 'two times such as ["1 s", "60 s"]'

    def parse(value: object) -> tuple[float, float]:
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError(f"expected {expected}, got {show(value)}")
        low, high = (units.parse_time(one) for one in value)
        if low > high:
            raise ValueError(
                f"expected {expected}, the lower one first, got {show(value[0])} first"
            )
        return low, high

    schema = {"type": "array", "items": _TIME_SCHEMA, "minItems": 2, "maxItems": 2}
    return Kind("two times", expected, parse, schema)


def bandwidth_or_regions(*, regions: bool) -> Kind:
    """A rate in bit/s; with `regions` also the word regions (None: as the geography says)."""
    expected = 'a rate such as "10 Mbit" (per second) or "630 KB/s"'
    rate_schema = {"type": "string", "pattern": _quantity_pattern(units.RATE_UNITS)}
    if not regions:
        return Kind("rate", expected, units.parse_rate, rate_schema)

    def parse(value: object) -> int | None:
        return None if value == "regions" else units.parse_rate(value)

    schema = {"anyOf": [{"const": "regions"}, rate_schema]}
    return Kind("rate, or regions", expected + ", or regions", parse, schema)


def optional_rate() -> Kind:
    """A rate in bit/s, or the word none (None)."""

    def parse(value: object) -> int | None:
        return None if value == "none" else units.parse_rate(value)

    rate_schema = {"type": "string", "pattern": _quantity_pattern(units.RATE_UNITS)}
    return Kind(
        "rate, or none",
        'a rate such as "630 KiB/s", or none',
        parse,
        {"anyOf": [{"const": "none"}, rate_schema]},
    )


def fraction(*, positive: bool = False) -> Kind:
    """A fraction between 0 and 1."""
    expected = 'a fraction such as "5 %" or 0.05'

    def parse(value: object) -> float:
        parsed = units.parse_fraction(value)
        if positive and parsed == 0:
            raise ValueError(f"expected {expected}, more than 0, got {show(value)}")
        return parsed

    least = "exclusiveMinimum" if positive else "minimum"
    return Kind(
        "fraction, more than 0" if positive else "fraction",
        expected,
        parse,
        {
            "anyOf": [
                {"type": "number", least: 0, "maximum": 1},
                {"type": "string", "pattern": _quantity_pattern(["%"])},
            ]
        },
    )


def whole_number(least: int, most: int) -> Kind:
    """An integer in [least, most]."""
    expected = f"a whole number from {least} to {most}"

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"expected {expected}, got {show(value)}")
        if not least <= value <= most:
            raise ValueError(f"expected {expected}, got {value}")
        return value

    return Kind(
        "whole number", expected, parse, {"type": "integer", "minimum": least, "maximum": most}
    )


def number() -> Kind:
    """A finite positive number without unit (a factor)."""
    expected = "a number more than 0, such as 1.5"

    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"expected {expected}, got {show(value)}")
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"expected {expected}, got {show(value)}")
        return float(value)

    return Kind("number", expected, parse, {"type": "number", "exclusiveMinimum": 0})


def text() -> Kind:
    """Text for people."""
    expected = "text"

    def parse(value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"expected {expected}, got {show(value)}")
        # A folded block keeps its last line end, which no reader of the title wants.
        return value.strip()

    return Kind("text", expected, parse, {"type": "string", "minLength": 1})


def exact_text() -> Kind:
    """Text for programs: one line, as it is written, spaces at its ends included."""
    expected = "text on one line"

    def parse(value: object) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise ValueError(f"expected {expected}, got {show(value)}")
        return value

    return Kind("text", expected, parse, {"type": "string", "minLength": 1})


def name(pattern: str, description: str) -> Kind:
    """A name that fits a pattern; description: "lower-case letters", for the message."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise ValueError(f"expected a name ({description}), got {show(value)}")
        return value

    schema = {"type": "string", "pattern": f"^{pattern}$"}
    return Kind("name", f"a name ({description})", parse, schema)


def color() -> Kind:
    """A colour as figures and pages take it."""
    return name(r"#[0-9A-Fa-f]{6}", 'a colour, written "#rrggbb"')


def choice(*values: str) -> Kind:
    """One of a few words."""
    expected = f"one of {', '.join(values)}" if len(values) > 1 else values[0]

    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in values:
            suggestion = nearest(value, values) if isinstance(value, str) else ""
            raise ValueError(f"expected {expected}, got {show(value)}{suggestion}")
        return value

    return Kind(expected, expected, parse, {"enum": list(values)})


def _torrc_value(value: object, expected: str) -> str:
    if isinstance(value, bool):
        raise ValueError(f"expected {expected}, got {show(value)}; Tor's switches are 0 and 1")
    if isinstance(value, (int, float)):
        return str(value)
    # A line break would smuggle in another option; a '#' would cut the value short, and a backslash
    # at its end would make the next option a part of it.
    if isinstance(value, str) and value.isprintable() and "#" not in value:
        text = value.strip()
        if not text.endswith("\\"):
            return text
    raise ValueError(f"expected {expected}, got {show(value)}")


_TORRC_SCHEMA = {"type": ["string", "number"]}


def torrc_line() -> Kind:
    """The one value of a torrc option."""
    expected = "text or a number (one torrc line)"
    return Kind(
        "text or number", expected, lambda value: _torrc_value(value, expected), _TORRC_SCHEMA
    )


def torrc_lines() -> Kind:
    """The value or values of one torrc option: always a tuple of texts, one per line."""
    expected = "text, a number, or a list of them (one torrc line each)"

    def parse(value: object) -> tuple[str, ...]:
        values = value if isinstance(value, list) and value else [value]
        return tuple(_torrc_value(one, expected) for one in values)

    schema = {"anyOf": [_TORRC_SCHEMA, {"type": "array", "items": _TORRC_SCHEMA, "minItems": 1}]}
    return Kind("text, number, or list of them", expected, parse, schema)


Option = type | tuple[str, ...]
"""What an option of another program takes: bool, int, str (text or number), or one of the words."""


def raw_options(
    program: str,
    takes: Mapping[str, Option],
    refused: Mapping[str, str],
    spoiling: Mapping[str, tuple[bool, str]],
) -> Kind:
    """A mapping of another program's options, handed on as written.

    takes: option -> what it takes (null is always allowed: as if it were not there); refused:
    option -> why it cannot be set; spoiling: option -> the value it cannot have, and why. Parsing
    does not look into the mapping: ``check_item`` does, and so each option's error has a line of
    its own.
    """
    expected = f"a mapping of {program}'s options"
    words = {bool: "true or false", int: "a whole number", str: "text"}

    def problem(option: str, value: object) -> str | None:
        if option in refused:
            return f"cannot be set here: {refused[option]}"
        if option not in takes:
            return f"unknown option of {program}{nearest(option, takes)}"
        kind = takes[option]
        if value is None:
            return None
        if option in spoiling and value is spoiling[option][0]:
            return f"cannot be {show(value)} here: {spoiling[option][1]}"
        if isinstance(kind, tuple):
            if value in kind:
                return None
            return (
                f"expected one of {', '.join(kind)}, got {show(value)}{nearest(str(value), kind)}"
            )
        is_bool = isinstance(value, bool)
        wanted = (str, int) if kind is str else (kind,)
        if isinstance(value, wanted) and is_bool == (kind is bool):
            return None
        return f"expected {words[kind]}, got {show(value)}"

    def parse(value: object) -> dict[str, str | int | bool | None]:
        if not isinstance(value, dict):
            raise ValueError(f"expected {expected}, got {show(value)}")
        return dict(value)

    def option_schema(option: str, kind: Option) -> dict[str, Any]:
        if option in spoiling:
            return {"enum": [not spoiling[option][0], None]}
        if isinstance(kind, tuple):
            return {"enum": [*kind, None]}
        names = {bool: ["boolean"], int: ["integer"], str: ["string", "integer"]}[kind]
        return {"type": [*names, "null"]}

    schema = {
        "type": "object",
        "properties": {
            option: option_schema(option, kind) for option, kind in sorted(takes.items())
        },
        "additionalProperties": False,
    }
    return Kind("mapping", expected, parse, schema, check_item=problem)
