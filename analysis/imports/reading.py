"""Reading of other programs' JSON files, with errors that locate the problem."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.errors import AnalysisError
from analysis.formats.format_model import LARGEST_VALUE
from analysis.formats.json_files import read_json


def read_located(path: Path) -> LocatedValue:
    """Read a JSON file; one whose name ends with .xz is compressed.

    Raises:
        AnalysisError: the file is missing, truncated, not compressed as its name says, or not JSON.
    """
    return LocatedValue(path, read_json(path, wrong="get a complete copy of the file"))


class LocatedValue:
    """A value inside a file, with its location.

    ``path`` and ``where`` (keys from the top) are part of every error message.
    """

    def __init__(self, path: Path, value: Any, where: str = "") -> None:
        self.path = path
        self.value = value
        self.where = where

    def wrong(self, expected: str) -> AnalysisError:
        """Return the error for a value that is not as expected."""
        place = f" at {self.where}" if self.where else ""
        return AnalysisError(
            f"{self.path}{place}: expected {expected}, found {_kind(self.value)}",
            "is it a file of another program or version?",
        )

    def items(self) -> Iterator[tuple[str, LocatedValue]]:
        """Yield the keys and values of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        for key, value in self.value.items():
            yield key, LocatedValue(self.path, value, f"{self.where}/{key}")

    def get(self, key: str) -> LocatedValue | None:
        """Return a value of an object, or None."""
        return dict(self.items()).get(key)

    def elements(self) -> Iterator[LocatedValue]:
        """Yield the elements of an array."""
        if not isinstance(self.value, list):
            raise self.wrong("an array")
        for index, value in enumerate(self.value):
            yield LocatedValue(self.path, value, f"{self.where}/{index}")

    def number(self, low: float = 0.0) -> float:
        """Return a number from ``low`` to ``LARGEST_VALUE``."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong("a number")
        # Compare before conversion, as large integers cannot be converted to floats.
        if not low <= value <= LARGEST_VALUE:
            raise self.wrong(f"a number from {low:g} to {LARGEST_VALUE:g}")
        return float(value)

    def whole_number(self) -> int:
        """Return an integer, which may be text: tgentools and OnionPerf copy numbers as text."""
        if isinstance(self.value, str) and re.fullmatch(r"-?\d{1,18}", self.value, re.ASCII):
            return int(self.value)
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return self.value
        raise self.wrong("a whole number")

    def required(self, key: str) -> LocatedValue:
        """Return the value of a key. Raises AnalysisError if the object lacks it."""
        value = self.get(key)
        if value is None:
            raise self.wrong(f'"{key}"')
        return value

    def numbers(self) -> list[float]:
        """Return an array of nonnegative numbers."""
        return [element.number() for element in self.elements()]

    def key_number(self, key: str) -> int:
        """Return a key that is a whole number and not negative."""
        if re.fullmatch(r"\d{1,18}", key, re.ASCII):
            return int(key)
        raise AnalysisError(
            f"{self.path} at {self.where}: expected a whole number as key, found {key[:40]!r}",
            "is it a file of another program or version?",
        )


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return f"{value!r}"[:60]
    return "an object" if isinstance(value, dict) else "an array"
