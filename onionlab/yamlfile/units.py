"""Parse quantities with units, and format values for messages.

A quantity is a string: a number, then its unit ("320 KiB", "10 ms", "5 Mbit", "0.5 %"). Only a
fraction can also be a plain number (0.005). Arithmetic is exact (fractions), so the same string
gives the same bits on every machine. Only the last step rounds a time to the nearest float.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

SIZE_UNITS: dict[str, int] = {
    "B": 1, "KB": 1000, "KiB": 1024, "MB": 1000**2, "MiB": 1024**2, "GB": 1000**3, "GiB": 1024**3,
}  # fmt: skip
"""Unit -> bytes."""

TIME_UNITS: dict[str, int] = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}
"""Unit -> milliseconds. Every time in an experiment is in whole milliseconds, as in TGen."""

RATE_UNITS: dict[str, int] = {
    **{f"{unit[:-1]}bit": factor for unit, factor in SIZE_UNITS.items()},
    **{f"{unit}/s": 8 * size for unit, size in SIZE_UNITS.items()},
}
"""Unit -> bits per second. "Mbit" means Mbit per second, as in Shadow."""

MAX_SIZE_BYTES = 2**50
MAX_TIME_MS = 366 * 24 * TIME_UNITS["h"]
MAX_RATE_BIT_PER_S = 10**15

# Misspelt unit -> the unit to suggest. For "Mbps", the most similar name of a unit would be "MB/s",
# which is wrong by a factor of eight.
_UNIT_BY_SPELLING = {"bps": "bit", "kbps": "Kbit", "mbps": "Mbit", "gbps": "Gbit"} | {
    f"{prefix}bit/s": f"{prefix.upper()}bit" for prefix in ("", "k", "m", "g")
}

# The numbers of digits are enough for every allowed quantity, and arithmetic stays fast.
_QUANTITY = re.compile(r"([+-]?)(\d{1,16}(?:\.\d{1,12})?)\s*([^\s\d.].*)?", re.ASCII | re.DOTALL)

MAX_GUESS_LENGTH = 100
"""Maximum length of a word for which a similar word is suggested. difflib is slow for longer
words."""


def show(value: object) -> str:
    """Return a value as a short string for an error message. A string is in double quotes."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = str(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, str):
        return '"' + text.encode("unicode_escape").decode("ascii") + '"'
    return text


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """Return ``; did you mean "X"?`` with the most similar known name; "" if none is similar."""
    found = find_nearest(word, known, cutoff)
    return f'; did you mean "{found}"?' if found else ""


def find_nearest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the most similar known name, or None if no name is similar."""
    if len(word) > MAX_GUESS_LENGTH:
        return None
    by_letters = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(word.casefold(), list(by_letters), n=1, cutoff=cutoff)
    return by_letters[close[0]] if close else None


def parse_size(value: object) -> int:
    """Return the bytes of a size such as "320 KiB". Raises ValueError for other values."""
    return int(_parse(value, 'a size such as "320 KiB"', SIZE_UNITS, "bytes", 1, MAX_SIZE_BYTES))


def parse_time(value: object, *, positive: bool = False) -> float:
    """Return the seconds of a time such as "10 ms".

    Raises ValueError for other values, and for a time that is not a whole number of milliseconds.
    """
    expected = 'a time such as "60 s"'
    return seconds(
        int(_parse(value, expected, TIME_UNITS, "milliseconds", int(positive), MAX_TIME_MS))
    )


parse_positive_time = functools.partial(parse_time, positive=True)


def parse_rate(value: object) -> int:
    """Return the bit/s of a rate such as "630 KB/s". Raises ValueError for other values."""
    expected = 'a rate such as "10 Mbit" (per second) or "630 KB/s"'
    return int(_parse(value, expected, RATE_UNITS, "bits per second", 1, MAX_RATE_BIT_PER_S))


def parse_fraction(value: object, *, positive: bool = False) -> float:
    """Return the number of a fraction such as "5 %" or 0.05. Raises ValueError for other values."""
    expected = 'a fraction such as "5 %" or 0.05'
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        fraction = float(value)
    else:
        fraction = float(_parse(value, expected, {"%": 1}) / 100)
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"expected {expected}, got {show(value)}: not between 0 and 1")
    if positive and fraction == 0:
        raise ValueError(f"expected {expected}, got {show(value)}: it must be more than 0")
    return fraction


def _parse(
    value: object,
    expected: str,
    units: Mapping[str, int],
    step: str = "",
    minimum: int = 0,
    maximum: int = 0,
) -> Fraction:
    """Return a quantity in the unit whose factor in `units` is 1. Raises ValueError for others.

    expected: a description of valid values, for messages. step: name of the resulting unit. If it
    is not empty, the result has to be a whole number from `minimum` (0 or 1) to `maximum`.
    """
    message = f"expected {expected}, got {show(value)}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"{message}: a quantity needs its unit")
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(message)
    sign, number, unit = match.groups()
    if unit is None:
        raise ValueError(f"{message}: a quantity needs its unit")
    if unit not in units:
        meant = _UNIT_BY_SPELLING.get(unit.casefold())
        meant = meant if meant in units else find_nearest(unit, units)
        hint = f'; did you mean "{sign}{number} {meant}"?' if meant else ""
        raise ValueError(f"{message}: the units are {', '.join(units)}{hint}")
    amount = (-1 if sign == "-" else 1) * Fraction(number) * units[unit]
    if step and amount.denominator != 1:
        raise ValueError(f"{message}: not a whole number of {step}")
    if step and amount < minimum:
        raise ValueError(f"{message}: it must be {'more than 0' if minimum else '0 or more'}")
    if step and amount > maximum:
        raise ValueError(f"{message}: larger than can be simulated")
    return amount


def milliseconds(time_s: float) -> int:
    """Return a time in seconds as milliseconds, rounded to the nearest whole number.

    This is the inverse of the function `seconds`: ``milliseconds(seconds(t)) == t``.
    """
    return round(Fraction(time_s) * TIME_UNITS["s"])


def seconds(time_ms: int) -> float:
    """Return milliseconds as seconds, rounded to the nearest float."""
    return float(Fraction(time_ms, TIME_UNITS["s"]))


def format_time(time_s: float) -> str:
    """Return a time as a string in s or ms. It is exact: ``parse_time(format_time(t)) == t``."""
    whole, rest = divmod(milliseconds(time_s), TIME_UNITS["s"])
    return f"{milliseconds(time_s)} ms" if rest else f"{whole} s"


def format_rate(rate_bit_per_s: int) -> str:
    """Return a positive rate as a string. It is exact: ``parse_rate(format_rate(r)) == r``."""
    units = {f: unit for unit, f in RATE_UNITS.items() if unit.endswith("bit")}
    factor = max(factor for factor in units if rate_bit_per_s % factor == 0)
    return f"{rate_bit_per_s // factor} {units[factor]}"
