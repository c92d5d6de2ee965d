"""Formatting of numbers and intervals for tables and CSV files."""

from __future__ import annotations

from analysis.inference.intervals import Interval

NOTHING = "\N{EN DASH}"
"""Placeholder in tables for a missing number."""


def format_number(value: float | None, sign: bool = False) -> str:
    """Format a number: four significant digits, groups of thousands, a real minus sign."""
    if value is None:
        return NOTHING
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


def format_interval(interval: Interval | None, sign: bool = False) -> str:
    """Format the bounds of an interval; "" if there are none."""
    if interval is None or interval.low is None or interval.high is None:
        return ""
    return f"[{format_number(interval.low, sign)}, {format_number(interval.high, sign)}]"


def readable_unit(unit: str) -> tuple[float, str]:
    """Return factor and unit for readers, such as MB/s instead of B/s, and per cent."""
    units = {"B/s": (1e-6, "MB/s"), "1": (100.0, "%"), "streams": (1.0, "")}
    return units.get(unit, (1.0, unit))


def scaled(interval: Interval | None, factor: float) -> Interval | None:
    """Return an interval in another unit."""
    if interval is None:
        return None
    low, high = interval.low, interval.high
    return Interval(
        interval.estimate * factor,
        None if low is None else low * factor,
        None if high is None else high * factor,
    )


def format_effect(effect: Interval | None, scale: str, unit: str) -> tuple[str, str]:
    """Format an effect and its interval as a factor or a difference, the same on all pages.

    Args:
        effect: of one side against the other.
        scale: "ratio" or "difference", as in ``verdicts.Verdict``.
        unit: unit of the metric; differences of shares are in percentage points.
    """
    if effect is None:
        return NOTHING, ""
    if scale == "ratio":
        bounds = [None if b is None else _factor(b) for b in (effect.low, effect.high)]
        interval = "" if None in bounds else f"[{bounds[0]}, {bounds[1]}]"
        return f"\N{MULTIPLICATION SIGN}{_factor(effect.estimate)}", interval
    factor, readable = readable_unit(unit)
    readable = "points" if readable == "%" else readable
    difference = scaled(effect, factor)
    assert difference is not None
    text = f"{format_number(difference.estimate, sign=True)} {readable}".rstrip()
    return text, format_interval(difference, sign=True)


def _factor(value: float) -> str:
    # Intervals from two seeds may be arbitrarily wide, so more digits would not add information.
    if value > 1000:
        return ">1000"
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def exact(value: float | None) -> str:
    """Format a number for a CSV file; nine digits are more than any metric has."""
    return "" if value is None else f"{value:.9g}"


def exact_bounds(interval: Interval | None) -> list[str]:
    """Format estimate, low and high for a CSV file, empty if missing."""
    if interval is None:
        return ["", "", ""]
    return [exact(value) for value in (interval.estimate, interval.low, interval.high)]
