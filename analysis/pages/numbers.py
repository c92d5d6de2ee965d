"""Formatting of numbers, intervals and effects for readers, the same on all pages."""

from __future__ import annotations

import math

from analysis.inference.intervals import Interval

NOTHING = "\N{EN DASH}"
"""Placeholder in tables for a missing number."""

UNITS = {"B/s": (1e-6, "MB/s"), "1": (100.0, "%"), "streams": (1.0, "")}
"""Unit of a metric -> factor and unit for readers."""


def readable_unit(unit: str) -> tuple[float, str]:
    """Return a factor and a unit for readers, such as MB/s for B/s, and % for a share.

    A value in the unit ``unit``, times the factor, is in the unit for readers.
    """
    return UNITS.get(unit, (1.0, unit))


def format_number(value: float | None, sign: bool = False, unit: str = "") -> str:
    """Format a number with about three digits, groups of thousands and a real minus sign.

    Args:
        value: None or NaN gives a placeholder.
        sign: whether to show a plus sign before positive numbers.
        unit: unit of the value. The value is converted to the unit that readers see.
    """
    if value is None or math.isnan(value):
        return NOTHING
    value *= readable_unit(unit)[0]
    plus = "+" if sign else ""
    magnitude = abs(value)
    if value == 0:
        text = "0"
    elif magnitude >= 1000:
        text = f"{value:{plus},.0f}"
    elif magnitude >= 0.001 or sign:
        digits = 3 - len(str(int(magnitude))) + (magnitude < 1)
        text = f"{value:{plus}.{max(0, digits)}f}"
    else:
        text = f"{value:{plus}.2g}"
    return text.replace("-", "\N{MINUS SIGN}")


def format_interval(interval: Interval | None, sign: bool = False, unit: str = "") -> str:
    """Format the bounds of an interval with ``format_number``; "" if there are none."""
    if interval is None or interval.low is None or interval.high is None:
        return ""
    low, high = (format_number(bound, sign, unit) for bound in (interval.low, interval.high))
    return f"[{low}, {high}]"


def format_difference(value: float, unit: str, sign: bool = True) -> str:
    """Format a difference with its unit; differences of shares are in percentage points."""
    readable = readable_unit(unit)[1]
    readable = "points" if readable == "%" else readable
    return f"{format_number(value, sign, unit)} {readable}".rstrip()


def format_effect(effect: Interval | None, scale: str, unit: str) -> tuple[str, str]:
    """Format an effect and its interval as a factor or a difference; None gives a placeholder.

    scale: "ratio" or "difference", as in ``verdicts.Verdict``.
    """
    if effect is None:
        return NOTHING, ""
    if scale == "difference":
        return format_difference(effect.estimate, unit), format_interval(effect, True, unit)
    text = f"\N{MULTIPLICATION SIGN}{_format_factor(effect.estimate)}"
    if effect.low is None or effect.high is None:
        return text, ""
    return text, f"[{_format_factor(effect.low)}, {_format_factor(effect.high)}]"


def _format_factor(value: float) -> str:
    # Intervals from two networks may be arbitrarily wide: more digits would not add information.
    if value > 1000:
        return ">1000"
    return f"{value:.3f}" if value >= 0.001 else "<0.001"
