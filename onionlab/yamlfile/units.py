"""Quantities with units, as an experiment file writes them.

A quantity is text: a number, then its unit ("320 KiB", "10 ms", "5 Mbit", "0.5 %"). A plain number
is refused, except for a fraction, which has no unit. Arithmetic is exact (fractions), so the same
text gives the same bits on every machine; only the last step rounds a time to the nearest float.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from fractions import Fraction

SIZE_UNITS: dict[str, int] = {
    "B": 1,
    "KB": 1000,
    "KiB": 1024,
    "MB": 1000**2,
    "MiB": 1024**2,
    "GB": 1000**3,
    "GiB": 1024**3,
}
"""Unit -> bytes."""

TIME_UNITS: dict[str, int] = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}
"""Unit -> milliseconds, the resolution of every time in an experiment (TGen has no finer one)."""

RATE_UNITS: dict[str, int] = {
    "bit": 1,
    "Kbit": 1000,
    "Kibit": 1024,
    "Mbit": 1000**2,
    "Mibit": 1024**2,
    "Gbit": 1000**3,
    "Gibit": 1024**3,
    **{f"{unit}/s": 8 * size for unit, size in SIZE_UNITS.items()},
}
"""Unit -> bits per second ("Mbit" means Mbit per second, as Shadow writes it)."""

MAX_SIZE_BYTES = 2**50
MAX_TIME_MS = 366 * 24 * TIME_UNITS["h"]
MAX_RATE_BIT_PER_S = 10**15

# What people write and what they mean by it. Distance between letters alone would turn "Mbps" into
# "MB/s", which is wrong by a factor of eight.
_MEANT = {
    "k": "KiB", "m": "MiB", "g": "GiB", "byte": "B", "bytes": "B",
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms",
    "mins": "min", "minute": "min", "minutes": "min", "hr": "h", "hour": "h", "hours": "h",
    "bps": "bit", "kbps": "Kbit", "mbps": "Mbit", "gbps": "Gbit",
    "bit/s": "bit", "kbit/s": "Kbit", "mbit/s": "Mbit", "gbit/s": "Gbit",
    "percent": "%",
}  # fmt: skip

# Enough digits for every quantity that fits, and not so many that a number becomes a burden.
_QUANTITY = re.compile(r"([+-]?)(\d{1,16}(?:\.\d{1,12})?)\s*([^\s\d.].*)?", re.ASCII | re.DOTALL)


def show(value: object) -> str:
    """A value as an error message quotes it: text in double quotes, short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value if len(value) <= 60 else value[:57] + "..."
        return '"' + text.encode("unicode_escape").decode("ascii") + '"'
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_size(value: object, *, positive: bool = True) -> int:
    """Bytes of a size such as "320 KiB".

    Raises:
        ValueError: what was expected, and what was got.
    """
    expected = 'a size such as "320 KiB"'
    amount = _amount(value, SIZE_UNITS, expected)
    return _whole(amount, value, expected, "bytes", int(positive), MAX_SIZE_BYTES)


def parse_time(value: object, *, positive: bool = False) -> float:
    """Seconds of a time such as "10 ms", which must be whole milliseconds.

    Raises:
        ValueError: what was expected, and what was got.
    """
    expected = 'a time such as "60 s"'
    amount = _amount(value, TIME_UNITS, expected)
    return seconds(_whole(amount, value, expected, "milliseconds", int(positive), MAX_TIME_MS))


def parse_rate(value: object) -> int:
    """Bits per second of a rate such as "10 Mbit" or "630 KB/s".

    Raises:
        ValueError: what was expected, and what was got.
    """
    expected = 'a rate such as "10 Mbit" (per second) or "630 KB/s"'
    amount = _amount(value, RATE_UNITS, expected)
    return _whole(amount, value, expected, "bits per second", 1, MAX_RATE_BIT_PER_S)


def parse_fraction(value: object) -> float:
    """A fraction between 0 and 1, from "5 %" or from a plain 0.05.

    Raises:
        ValueError: what was expected, and what was got.
    """
    expected = 'a fraction such as "5 %" or 0.05'
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        fraction = float(value)
    else:
        fraction = float(_amount(value, {"%": 1}, expected) / 100)
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"expected {expected}, got {show(value)}: not between 0 and 1")
    return fraction


def milliseconds(time_s: float) -> int:
    """Whole milliseconds of a time in seconds: undoes the rounding to a float."""
    return round(Fraction(time_s) * TIME_UNITS["s"])


def seconds(time_ms: int) -> float:
    """Seconds, as the nearest float."""
    return float(Fraction(time_ms, TIME_UNITS["s"]))


def format_size(size_bytes: int) -> str:
    """The exact text of a size: ``parse_size(format_size(n)) == n``."""
    return _format(size_bytes, SIZE_UNITS, "B")


def format_time(time_s: float) -> str:
    """The exact text of a time, in s or ms: ``parse_time(format_time(t)) == t``."""
    units = {unit: factor for unit, factor in TIME_UNITS.items() if unit not in ("min", "h")}
    return _format(milliseconds(time_s), units, "s")


def format_rate(rate_bit_per_s: int) -> str:
    """The exact text of a rate: ``parse_rate(format_rate(r)) == r``."""
    units = {unit: factor for unit, factor in RATE_UNITS.items() if unit.endswith("bit")}
    return _format(rate_bit_per_s, units, "bit")


def _format(amount: int, units: Mapping[str, int], zero_unit: str) -> str:
    if amount == 0:
        return f"0 {zero_unit}"
    unit = max((u for u, factor in units.items() if amount % factor == 0), key=lambda u: units[u])
    return f"{amount // units[unit]} {unit}"


def _amount(value: object, units: Mapping[str, int], expected: str) -> Fraction:
    if not isinstance(value, str):
        why = ": a quantity needs its unit" if isinstance(value, (int, float)) else ""
        why = "" if isinstance(value, bool) else why
        raise ValueError(f"expected {expected}, got {show(value)}{why}")
    match = _QUANTITY.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"expected {expected}, got {show(value)}")
    sign, number, unit = match.groups()
    if unit is None:
        raise ValueError(f"expected {expected}, got {show(value)}: a quantity needs its unit")
    if unit not in units:
        nearest = _nearest_unit(unit, units)
        meant = f'; did you mean "{sign}{number} {nearest}"?' if nearest else ""
        names = ", ".join(units)
        raise ValueError(f"expected {expected}, got {show(value)}: the units are {names}{meant}")
    return (-1 if sign == "-" else 1) * Fraction(number) * units[unit]


def _nearest_unit(unit: str, units: Mapping[str, int]) -> str | None:
    meant = _MEANT.get(unit.casefold())
    if meant in units:
        return meant
    # Same letters in another case first ("kib", "mbit"), then the nearest spelling.
    by_letters = {known.casefold(): known for known in units}
    close = difflib.get_close_matches(unit.casefold(), list(by_letters), n=1, cutoff=0.5)
    return by_letters[close[0]] if close else None


def _whole(amount: Fraction, value: object, expected: str, unit: str, least: int, most: int) -> int:
    if amount.denominator != 1:
        raise ValueError(f"expected {expected}, got {show(value)}: not a whole number of {unit}")
    if amount < least:
        must = "more than 0" if least else "0 or more"
        raise ValueError(f"expected {expected}, got {show(value)}: it must be {must}")
    if amount > most:
        raise ValueError(f"expected {expected}, got {show(value)}: larger than can be simulated")
    return int(amount)
