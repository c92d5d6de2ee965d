"""Parse times and rates of Shadow's configuration: whole numbers with or without a unit.

https://shadow.github.io/docs/guide/shadow_config_spec.html
"""

from __future__ import annotations

import re

from onionlab.yamlfile.units import show

_TIME_NS = {
    name: factor
    for factor, names in {
        1: "ns nanosecond nanoseconds",
        10**3: "us μs microsecond microseconds",
        10**6: "ms millisecond milliseconds",
        10**9: "s sec secs second seconds",
        60 * 10**9: "m min mins minute minutes",
        3600 * 10**9: "h hr hrs hour hours",
    }.items()
    for name in names.split()
}
_RATE_BIT = {
    f"{prefix}{unit}": base**power
    for base, rows in {10**3: (" ", "K kilo", "M mega", "G giga", "T tera"),
                       2**10: (" ", "Ki kibi", "Mi mebi", "Gi gibi", "Ti tebi")}.items()
    for power, prefixes in enumerate(rows)
    for prefix in prefixes.split(" ")
    for unit in ("bit", "bits")
}  # fmt: skip
_QUANTITY = re.compile(r"([0-9]{1,18})\s*([^\W\d_]*)")
MAX_AMOUNT = 2**62
"""The largest number of nanoseconds or bits; Shadow represents both in 64 bits."""


def time_ns(value: object) -> int:
    """Return a time in nanoseconds. A number without unit is in seconds.

    Raises:
        ValueError: the value is not a time; the message states the expected and the actual value.
    """
    return _amount(value, _TIME_NS, "s", 'a time of Shadow such as "10 ms" or 300')


def time_ms(value: object) -> int:
    """Return a time in milliseconds, see `time_ns`.

    Raises:
        ValueError: see `time_ns`; or the time is not a whole number of milliseconds.
    """
    whole, rest = divmod(time_ns(value), 10**6)
    if rest:
        raise ValueError(f"expected a time in whole milliseconds, got {show(value)}")
    return whole


def rate_bit_per_s(value: object) -> int:
    """Return a bandwidth such as "1000000 kilobit" in bits per second.

    Raises:
        ValueError: the value is 0 or not a bandwidth; the message states the expected and the
            actual value.
    """
    expected = 'a bandwidth of Shadow such as "10 Mbit" or "1000000 kilobit"'
    amount = _amount(value, _RATE_BIT, None, expected)
    if amount == 0:
        raise ValueError(f"expected {expected}, more than 0, got {show(value)}")
    return amount


def _amount(value: object, units: dict[str, int], plain: str | None, expected: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # A number is parsed like a string without a unit.
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    factor = units.get(found[2] or plain or "") if found is not None else None
    amount = int(found[1]) * factor if found is not None and factor is not None else MAX_AMOUNT + 1
    if amount > MAX_AMOUNT:
        raise ValueError(f"expected {expected}, got {show(value)}")
    return amount
