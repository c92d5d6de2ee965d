from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onionlab.yamlfile import units
from onionlab.yamlfile.field_types import Fraction, Size, Time
from onionlab.yamlfile.model import json_schema


@pytest.mark.parametrize(
    ("parse", "value", "parsed"),
    [
        (units.parse_size, "5 MiB", 5 * 1024 * 1024),
        (units.parse_size, "320 KB", 320_000),
        (units.parse_size, "1.5 KiB", 1536),
        (units.parse_size, "2GiB", 2**31),
        (units.parse_size, " 3 GB ", 3_000_000_000),
        (units.parse_time, "5 min", 300.0),
        (units.parse_rate, "1 MiB/s", 8 * 1024 * 1024),
        (units.parse_rate, "1 B/s", 8),
        (units.parse_fraction, "5 %", 0.05),
        (units.parse_fraction, 0.05, 0.05),
        (units.parse_fraction, 0, 0.0),
        (units.parse_fraction, "100 %", 1.0),
    ],
)
def test_parsed(parse: Callable[[object], object], value: object, parsed: float) -> None:
    assert parse(value) == parsed


@given(st.integers(min_value=0, max_value=units.MAX_TIME_MS))
def test_time_round_trip(time_ms: int) -> None:
    time_s = units.seconds(time_ms)
    assert units.milliseconds(time_s) == time_ms
    assert units.parse_time(units.format_time(time_s)) == time_s


@given(st.integers(min_value=1, max_value=units.MAX_RATE_BIT_PER_S))
def test_rate_round_trip(rate_bit_per_s: int) -> None:
    assert units.parse_rate(units.format_rate(rate_bit_per_s)) == rate_bit_per_s


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        (units.parse_size, 320, "got 320: a quantity needs its unit"),
        (units.parse_size, True, "got true"),
        (units.parse_size, None, "got nothing"),
        (units.parse_size, "320 Kb!", 'did you mean "320 KB"?'),
        (units.parse_size, "0 B", "it must be more than 0"),
        (units.parse_size, "0.5 B", "not a whole number of bytes"),
        (units.parse_size, "9999999 GiB", "larger than can be simulated"),
        (units.parse_size, "1e3 B", 'expected a size such as "320 KiB"'),
        (units.parse_size, "9" * 5000 + " B", "expected a size"),
        (units.parse_size, "\u0663 B", "expected a size"),
        (units.parse_time, "60 sec", 'did you mean "60 s"?'),
        (units.parse_time, "1.5 ms", "not a whole number of milliseconds"),
        (units.parse_time, "-1 s", "it must be 0 or more"),
        (units.parse_positive_time, "0 s", "it must be more than 0"),
        (units.parse_rate, "10 Mbps", 'did you mean "10 Mbit"?'),
        (units.parse_rate, "10 Mb/s", 'did you mean "10 MB/s"?'),
        (units.parse_rate, "0 bit", "it must be more than 0"),
        (units.parse_fraction, 1.5, "not between 0 and 1"),
        (units.parse_fraction, "-1 %", "not between 0 and 1"),
        (units.parse_fraction, float("nan"), "not between 0 and 1"),
        (units.parse_fraction, True, "got true"),
        (units.parse_fraction, "0.5", "a quantity needs its unit"),
    ],
)
def test_refused(parse: Callable[[object], object], value: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(value)


@given(st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,2})? ?(B|KB|KiB|kb|ms|s|min|h|%|sec)?", fullmatch=True))
@pytest.mark.parametrize(
    ("field_type", "parse"),
    [(Size, units.parse_size), (Time, units.parse_time), (Fraction, units.parse_fraction)],
)
def test_json_schema_agrees_with_the_parsers(
    field_type: object, parse: Callable[[object], object], text: str
) -> None:
    """The schema accepts all strings that the parser accepts, and rejects strings with wrong units.

    It may also accept strings whose value the parser rejects, such as 0 B.
    """
    schema = json_schema(field_type)
    options = schema.get("anyOf", [schema])
    fits = any(re.search(one["pattern"], text) for one in options if "pattern" in one)
    try:
        parse(text)
    except ValueError as error:
        wrong_unit = "needs its unit" in str(error) or "the units are" in str(error)
        assert not (fits and wrong_unit)
    else:
        assert fits
