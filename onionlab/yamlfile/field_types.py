"""The types of values in files, for the fields of models.

Each type converts a YAML value to base units and has a JSON Schema. Editors, the documentation's
table of keys and the program therefore agree on the valid values.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    create_model,
    field_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from onionlab.yamlfile.units import (
    RATE_UNITS,
    SIZE_UNITS,
    TIME_UNITS,
    parse_fraction,
    parse_positive_time,
    parse_rate,
    parse_size,
    parse_time,
    show,
)

T = TypeVar("T")


def _text(title: str, unit_names: Iterable[str]) -> Any:
    """Return the type of a quantity in JSON Schemas: a string with a unit. `title`: its name."""
    names = "|".join(re.escape(unit) for unit in unit_names)
    return Annotated[str, Field(title=title, pattern=rf"^\s*[0-9]+(\.[0-9]+)?\s*({names})\s*$")]


RESOLVED = "resolved"
"""Validation context for models whose values have already been parsed."""


def parsed(parse: Callable[[Any], object], schema: Any) -> BeforeValidator:
    """Return a validator that parses a value of a file. `schema`: the value's type in the file."""

    def validate(value: object, info: ValidationInfo) -> object:
        return value if info.context == RESOLVED else parse(value)

    return BeforeValidator(validate, json_schema_input_type=schema)


def _quantity(parse: Callable[[object], object], text: Any, word: str = "") -> BeforeValidator:
    """Return a validator of a quantity. `text`: the quantity's type in JSON Schemas.

    If `word` is not empty, a file can have this word in place of a quantity. The word means None.
    """
    if not word:
        return parsed(parse, text)

    def parse_or_word(value: object) -> object:
        if value == word:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise ValueError(f"{error}, or use {word}") from None

    return parsed(parse_or_word, text | Literal[word])


def parse_time_span(value: object) -> tuple[float, float]:
    """Return two times in seconds. Raises ValueError if the first one is later than the second."""
    expected = 'two times such as ["1 s", "60 s"]'
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"expected {expected}, got {show(value)}")
    low, high = map(parse_time, value)
    if low > high:
        raise ValueError(f"expected {expected}, the lower one first, got {show(value[0])} first")
    return low, high


_SIZE = _text("size", SIZE_UNITS)
_TIME = _text("time", TIME_UNITS)
_RATE = _text("rate", RATE_UNITS)
_PERCENT = _text("fraction", ["%"])

Size = Annotated[int, _quantity(parse_size, _SIZE)]
"""A positive size in bytes."""
AutomaticSize = Annotated[int | None, _quantity(parse_size, _SIZE, "automatic")]
Time = Annotated[float, _quantity(parse_time, _TIME)]
"""A time in seconds."""
PositiveTime = Annotated[float, _quantity(parse_positive_time, _TIME)]
OptionalTime = Annotated[float | None, _quantity(parse_positive_time, _TIME, "none")]
_TWO_TIMES: Any = Annotated[list[_TIME], Field(min_length=2, max_length=2)]  # type: ignore[valid-type]
OptionalTimeSpan = Annotated[tuple[float, float] | None, parsed(parse_time_span, _TWO_TIMES)]
"""Two times in seconds. The first time is not later than the second. None can only be a default,
because null is not valid in a file."""
Rate = Annotated[int, _quantity(parse_rate, _RATE)]
"""A positive rate in bit/s."""
OptionalRate = Annotated[int | None, _quantity(parse_rate, _RATE, "none")]
RegionalRate = Annotated[int | None, _quantity(parse_rate, _RATE, "regions")]
"""A rate in bit/s, or None for the word `regions`, which means the rates of the geography."""
_FRACTION = Annotated[float, Field(title="fraction", ge=0, le=1)] | _PERCENT
Fraction = Annotated[float, parsed(parse_fraction, _FRACTION)]
"""A fraction between 0 and 1."""
PositiveFraction = Annotated[
    float,
    parsed(
        functools.partial(parse_fraction, positive=True),
        Annotated[float, Field(title="fraction", gt=0, le=1)] | _PERCENT,
    ),
]
PositiveNumber = Annotated[float, Field(gt=0)]

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""Text for people. White space at both ends, such as the last line break, is stripped."""
Color = Annotated[str, Field(pattern="^#[0-9A-Fa-f]{6}$")]


def _require_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError(f"expected text on one line, got {show(value)}")
    return value


ExactText = Annotated[str, Field(min_length=1), AfterValidator(_require_line)]
"""One line of text for programs. It is not changed."""


def one_of(*words: str) -> BeforeValidator:
    """Return a validator that accepts only these words. They can be the keys of a table.

    If the words are constants, use a ``Literal`` instead.
    """
    choice: Any = Literal[words]
    return BeforeValidator(TypeAdapter(choice).validate_python, json_schema_input_type=choice)


def _refuse(value: object) -> object:
    raise PydanticCustomError("extra_forbidden", "unknown key")


_Hidden = SkipJsonSchema[Any]
Derived = Annotated[SkipJsonSchema[T], parsed(_refuse, Any), Field(validate_default=False)]
"""A value that the program sets, and that a file cannot set."""


def _torrc_line(value: object) -> str:
    if isinstance(value, bool):
        raise ValueError(
            f"expected text or a number, got {show(value)}; Tor's switches are 0 and 1"
        )
    if isinstance(value, (int, float)):
        return str(value)
    # A line break would add another option. A '#' would truncate the value. A backslash at the end
    # would join the next line to the value.
    if isinstance(value, str) and value.isprintable() and "#" not in value:
        text = value.strip()
        if not text.endswith("\\"):
            return text
    raise ValueError(f"expected text or a number (one torrc line), got {show(value)}")


TorrcLine = Annotated[str, parsed(_torrc_line, str | float)]
"""The value of a torrc option that has one line."""
TorrcLines = Annotated[
    tuple[str, ...],
    parsed(
        lambda value: tuple(
            map(_torrc_line, value if isinstance(value, list) and value else [value])
        ),
        str | float | Annotated[list[str | float], Field(min_length=1)],
    ),
]
"""The values of a torrc option, one per line."""

OptionType = type | tuple[str, ...]
"""Type of another program's option: bool, int, str (text or a whole number), or a tuple of words
that the option accepts."""


def _require_text(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, str) and value.isprintable()):
        raise ValueError(f"expected text or a whole number, got {show(value)}")
    return value


def options_mapping(
    types: Mapping[str, OptionType],
    refused: Mapping[str, str],
    spoiling: Mapping[str, tuple[bool, str]],
) -> BeforeValidator:
    """Return a validator of another program's options, a mapping. It does not convert values.

    Args:
        types: Option -> its type. The value of each option can also be null.
        refused: Option -> reason why it cannot be set.
        spoiling: Option -> the value that it cannot have, and the reason.
    """
    python_types: dict[OptionType, Any] = {
        kind: Literal[kind] if isinstance(kind, tuple) else kind for kind in types.values()
    }
    python_types[str] = Annotated[str | int, BeforeValidator(_require_text)]
    fields: dict[str, Any] = {
        name: (python_types[types[name]] | None, None) for name in sorted(types)
    }
    fields |= dict.fromkeys(refused, (_Hidden, None))

    def check(value: object, info: ValidationInfo) -> object:
        name = str(info.field_name)
        if name in refused:
            raise ValueError(f"cannot be set here: {refused[name]}")
        if name in spoiling and value is spoiling[name][0]:
            raise ValueError(f"cannot be {show(value)} here: {spoiling[name][1]}")
        return value

    model = create_model(
        "Options",
        __config__=ConfigDict(strict=True, extra="forbid"),
        __validators__={"check": field_validator("*", mode="before")(check)},
        **fields,
    )

    def validate(value: object) -> object:
        model.model_validate(value)
        return value

    return BeforeValidator(validate, json_schema_input_type=model)
