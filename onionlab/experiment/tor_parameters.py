"""Consensus parameters and options that Tor reads, and settings that keep it from reading them.

Tor ignores a parameter if its name is unknown or a torrc option overrides it. Tor ignores an option
if another setting disables the feature. Tor reports no error in these cases. The tables and the
meanings of their columns are in tor_0.4.9.yaml.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.yamlfile.tree import plain, read_tree

_FILE = Path(__file__).with_name("tor_0.4.9.yaml")
_TABLES: Any = plain(read_tree(_FILE.read_text(encoding="utf-8"), _FILE.name))


def _range(limits: str) -> range:
    low, high = limits.split("..")
    return range(int(low or -(2**31)), int(high or 2**31 - 1) + 1)


def _casefolded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(str.casefold, names))


CONSENSUS_PARAMETERS: Mapping[str, range] = {
    name: _range(limits) for limits, names in _TABLES["parameters"].items() for name in names
}
"""Consensus parameter that Tor reads -> the values that Tor accepts."""
PARAMETER_NAMES = {name.casefold(): name for name in CONSENSUS_PARAMETERS}
OPTION_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    name: (str(value),) for name, value in _TABLES["option_defaults"].items()
}
PARAMETER_DEFAULTS: Mapping[str, int] = _TABLES["parameter_defaults"]
REPLACED_LISTS = _casefolded(_TABLES["replaced_lists"])
ADDED_LISTS = _casefolded(_TABLES["added_lists"])
SOCKS_FLAGS = _casefolded(_TABLES["socks_flags"])


@dataclass(frozen=True)
class Override:
    """A torrc option that makes Tor ignore other options or consensus parameters.

    Attributes:
        names: Name or pattern of the ignored options or parameters, in lower case.
        option: The torrc option.
        harmless: Values of the option with which Tor still reads the other options or parameters.
            "<N" stands for all numbers below N. "!" precedes a value that does not suffice: another
            setting can still keep Tor from reading `names`, so messages do not propose this value.
        group: Hosts that would otherwise read `names`: authority, relay, client or all.
    """

    names: str
    option: str
    harmless: tuple[str, ...]
    group: str = "all"

    def concerns(self, name: str) -> bool:
        """Return whether `names` matches an option or a parameter."""
        return fnmatch.fnmatchcase(name.casefold(), self.names)

    def holds(self, value: str) -> bool:
        """Return whether Tor ignores the other options or parameters if `option` has this value."""
        word = re.split("[ ,]", value.strip('"'))[0]
        return not any(_equals(word, one.lstrip("!")) for one in self.harmless)

    @property
    def remedies(self) -> tuple[str, ...]:
        """The values of `option` that messages propose: the harmless values without a "!"."""
        return tuple(one for one in self.harmless if not one.startswith("!"))


@dataclass(frozen=True)
class Limits:
    """The limits of an option's values. Tor replaces a value beyond a limit by this limit.

    Attributes:
        hosts: Hosts on which Tor replaces values: "relay" (including authorities) or "all".
        least: The least value, as in a torrc.
        most: The greatest value; "" if it is unlimited.
        kept: Another value that Tor does not replace, or None.
    """

    hosts: str
    least: str
    most: str
    kept: float | None

    def accept(self, value: str) -> bool:
        """Return whether Tor keeps a value instead of replacing it by a limit.

        Return True for a value that is not a number: Tor refuses it with an error.
        """
        number = _quantity(value)
        if number == self.kept or math.isnan(number):
            return True
        return _quantity(self.least) <= number and not number > _quantity(self.most)

    def __str__(self) -> str:
        """Return what Tor accepts and what it does with other values, for messages."""
        if self.most:
            return f"{self.least} to {self.most}, and replaces other values by the nearest of these"
        return f"at least {self.least}, and replaces lower values by this"


_UNITS = {
    "": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400,
    "b": 1, "byte": 1, "kb": 2**10, "kbyte": 2**10, "kilobyte": 2**10, "m": 2**20, "mb": 2**20,
    "mbyte": 2**20, "megabyte": 2**20, "gb": 2**30, "gbyte": 2**30, "gigabyte": 2**30,
}  # fmt: skip
"""Unit in a torrc -> its value in seconds or bytes; see src/lib/confmgt/unitparse.c."""


def _quantity(text: str) -> float:
    """Return a value of a torrc in seconds, bytes or without a unit; NaN for any other string."""
    match = re.fullmatch(r"(-?\d+\.?\d*|-?\.\d+) *([a-z]*)", text.strip('" ').casefold(), re.ASCII)
    return float(match[1]) * _UNITS.get(match[2].removesuffix("s"), math.nan) if match else math.nan


def overrides_of(parameter: str) -> Iterator[Override]:
    """Yield the options that can override a parameter."""
    return (one for one in OVERRIDES if one.concerns(parameter))


def conditions_of(name: str) -> Iterator[Override]:
    """Yield the settings that can make Tor ignore a torrc option or a parameter."""
    own = name.casefold()
    return (one for one in CONDITIONS if one.concerns(name) and one.option.casefold() != own)


def _equals(word: str, expected: str) -> bool:
    try:
        number = float(word)
    except ValueError:
        return word.casefold() == expected.casefold()
    if expected.startswith("<"):
        return number < float(expected[1:])
    # Tor treats each negative number as "not set", for which the tables have -1.
    return expected.lstrip("-").isdigit() and max(number, -1) == int(expected)


def _read_rows(rows: Iterable[str]) -> tuple[Override, ...]:
    return tuple(
        Override(names.casefold(), option, tuple(harmless.split(",")), *group)
        for names, option, *group, harmless in map(str.split, rows)
    )


OVERRIDES = _read_rows(_TABLES["overrides"])
CONDITIONS = _read_rows(_TABLES["conditions"])
LIMITS = {
    name.casefold(): Limits(hosts, str(least), str(most), kept)
    for name, (hosts, least, most, kept) in _TABLES["limits"].items()
}
