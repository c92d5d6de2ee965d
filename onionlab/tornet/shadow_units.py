"""Times and rates as Shadow's configuration writes them: whole numbers with or without a unit.

https://shadow.github.io/docs/guide/shadow_config_spec.html
"""

from __future__ import annotations

import re

from onionlab.yamlfile.units import show

_TIME_NS = {
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1),
    **dict.fromkeys(("us", "μs", "microsecond", "microseconds"), 10**3),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 10**6),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 10**9),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60 * 10**9),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600 * 10**9),
}
_PREFIXES = {
    "": 1,
    **dict.fromkeys(("K", "kilo"), 10**3),
    **dict.fromkeys(("M", "mega"), 10**6),
    **dict.fromkeys(("G", "giga"), 10**9),
    **dict.fromkeys(("T", "tera"), 10**12),
    **dict.fromkeys(("Ki", "kibi"), 2**10),
    **dict.fromkeys(("Mi", "mebi"), 2**20),
    **dict.fromkeys(("Gi", "gibi"), 2**30),
    **dict.fromkeys(("Ti", "tebi"), 2**40),
}
_RATE_BIT = {
    f"{prefix}{unit}": factor for prefix, factor in _PREFIXES.items() for unit in ("bit", "bits")
}
_QUANTITY = re.compile(r"([0-9]{1,18})\s*([^\W\d_]*)")
LARGEST = 2**62
"""Of nanoseconds and of bits: Shadow holds both in 64 bits."""


def time_ns(value: object) -> int:
    """Nanoseconds of a time; a number without unit is in seconds.

    Raises:
        ValueError: what was expected, and what was got.
    """
    return _amount(value, _TIME_NS, "s", 'a time of Shadow such as "10 ms" or 300')


def time_ms(value: object) -> int:
    """Milliseconds of a time, as `time_ns`.

    Raises:
        ValueError: as `time_ns`, or not whole milliseconds.
    """
    whole, rest = divmod(time_ns(value), 10**6)
    if rest:
        raise ValueError(f"expected a time in whole milliseconds, got {show(value)}")
    return whole


def rate_bit_per_s(value: object) -> int:
    """Bits per second of a bandwidth such as "1000000 kilobit"; more than 0.

    Raises:
        ValueError: what was expected, and what was got.
    """
    expected = 'a bandwidth of Shadow such as "10 Mbit" or "1000000 kilobit"'
    amount = _amount(value, _RATE_BIT, None, expected)
    if amount == 0:
        raise ValueError(f"expected {expected}, more than 0, got {show(value)}")
    return amount


def _amount(value: object, units: dict[str, int], plain: str | None, expected: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # as the file has it
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    factor = units.get(found[2] or plain or "") if found is not None else None
    amount = int(found[1]) * factor if found is not None and factor is not None else LARGEST + 1
    if amount > LARGEST:
        raise ValueError(f"expected {expected}, got {show(value)}")
    return amount
