"""The imported data of one simulation, its statistics, and the reading of other programs' files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from analysis.comparison.imported_metrics import (
    CIRCUIT_BUILD_TIME,
    DURATIONS,
    ERROR_RATE,
    RELAY_GOODPUT,
)
from analysis.errors import AnalysisError
from analysis.formats.byte_marks import format_size
from analysis.formats.compressed import DamagedError, TooLargeError, pieces
from analysis.formats.format_model import LARGEST_VALUE
from analysis.formats.json_files import LARGEST_BYTES, read_as
from analysis.measures.data import ALL
from analysis.measures.metric import QUANTILES, Statistic, rank

Measured = Annotated[float, Field(strict=True, ge=0, le=LARGEST_VALUE)]
"""A measured number. Strings and booleans are rejected."""


def _parse_whole_number(value: object) -> object:
    """Convert a string with an integer to this integer, and return other values unchanged.

    A string such as "060" is not converted, because two keys of an object ("60" and "060") would
    become the same number.
    """
    is_number = isinstance(value, str) and re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value)
    return int(str(value)) if is_number else value


Integer = Annotated[int, Field(strict=True), BeforeValidator(_parse_whole_number)]
"""A whole number. tgentools and OnionPerf sometimes write such a number as a string."""

WholeNumber = Annotated[Integer, Field(ge=0)]
"""A nonnegative whole number. If it is a key of a JSON object, it is written as a string."""

MAX_MEMORY_BYTES = 900_000_000
"""Maximum memory for the content of a file, estimated from its JSON.

The size of the file would be a poor limit: tgentools' streams, which are mostly strings, need a few
times their size in memory, but nested empty arrays need 34 times their size.
"""

BYTE_MEMORY = 5
MARK_MEMORY = {b"{": 200, b"[": 80, b":": 100, b",": 40}
"""JSON mark -> upper bound of the memory in bytes for its object, array, key or element.

``BYTE_MEMORY`` is added for each byte of JSON.
"""

Key = tuple[str, str]
"""Class of downloads, and a quantity of ``imported_metrics``."""


@dataclass
class ImportedSimulation:
    """The imported data of one simulation.

    Attributes:
        name: name of its folder or file.
        values: (class, quantity) -> values, one for each completed download or circuit. For
            ``RELAY_GOODPUT``, there is one value for each second: the bytes of all relays.
        downloads: class -> the numbers of failed and of all downloads.
        notes: notes on ignored parts of its files.
        content: hash of its files; "" if unknown.
        network: string that identifies the network; "" if only the simulation's name identifies it.
    """

    name: str
    values: dict[Key, list[float]] = field(default_factory=dict)
    downloads: dict[str, tuple[float, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    content: str = ""
    network: str = ""

    def add(self, class_name: str, quantity: str, values: Iterable[float]) -> None:
        """Append values to the existing values of a class and a quantity."""
        self.values.setdefault((class_name, quantity), []).extend(values)

    def count(self, class_name: str, failed: float, total: float) -> None:
        """Add to the numbers of failed and of all downloads of a class."""
        before = self.downloads.get(class_name, (0.0, 0.0))
        self.downloads[class_name] = (before[0] + failed, before[1] + total)

    @property
    def empty(self) -> bool:
        """True if no download completed, so that there are no times of downloads."""
        of_downloads = DURATIONS.keys() - {CIRCUIT_BUILD_TIME}
        return not any(values for (_, name), values in self.values.items() if name in of_downloads)

    @property
    def keys(self) -> set[Key]:
        """The pairs (class, quantity) for which the simulation has data."""
        found = {key for key, values in self.values.items() if values}
        return found | {(class_name, ERROR_RATE) for class_name in self.downloads}

    def statistics(self, keys: set[Key]) -> dict[tuple[str, str], Statistic]:
        """Return the simulation's statistics: (class, metric) -> statistic.

        keys: the ``keys`` of all simulations in the set. A key for which this simulation has no
            data gets a statistic without a value.
        """
        result: dict[tuple[str, str], Statistic] = {}
        for class_name, name in sorted(keys):
            values = self.values.get((class_name, name), [])
            if name in DURATIONS:
                for q in QUANTILES:
                    result[class_name, f"{name}_{rank(q)}_s"] = _quantile(values, q)
            elif name == ERROR_RATE:
                result[class_name, name] = self._error_rate(class_name)
            elif name == RELAY_GOODPUT:
                mean = float(np.mean(values)) if values else None
                result[ALL, name] = Statistic(mean, "" if values else "no goodput of relays")
            else:
                result[class_name, f"{name}_p50_bytes_per_s"] = _quantile(values, 0.5)
        return result

    def _error_rate(self, class_name: str) -> Statistic:
        failed, total = self.downloads.get(class_name, (0.0, 0.0))
        if total <= 0:
            return Statistic(None, "no download, or their number is unknown")
        return Statistic(min(1.0, failed / total))


def size_class(circuit: str, size_bytes: int) -> str:
    """Return the class of downloads of one size over one kind of circuit."""
    return f"{circuit} {format_size(size_bytes)}"


def read_other(kind: Any, path: Path) -> Any:
    """Read a JSON file of another program, plain or compressed, and validate it as ``kind``.

    Raises:
        AnalysisError: the file is missing, truncated, not compressed as its name says, not JSON,
            not valid for ``kind`` (the message names the wrong keys), or needs too much memory.
    """
    hint = "get a complete copy of the file, or is it of another program or version?"
    # If the file cannot be read, `read_as` reports the reason.
    with contextlib.suppress(OSError, DamagedError, TooLargeError):
        _require_memory(path)
    return read_as(kind, path, "file to import", wrong=hint, most=LARGEST_BYTES)


def _require_memory(path: Path) -> None:
    """Raise AnalysisError if the content of a file may need too much memory.

    An unreadable file raises OSError or the errors of `pieces`.
    """
    needed = 0
    with path.open("rb") as file:
        for piece in pieces(file, path.suffix):
            needed += BYTE_MEMORY * len(piece)
            needed += sum(size * piece.count(mark) for mark, size in MARK_MEMORY.items())
            if needed > MAX_MEMORY_BYTES:
                raise AnalysisError(
                    f"{path} is too large: it may need more than {MAX_MEMORY_BYTES / 1e6:g} MB of "
                    "memory",
                    "import a file of fewer hosts",
                )


def _quantile(values: Sequence[float], q: float) -> Statistic:
    # Use NumPy's default method of interpolation, as tornettools does.
    if not values:
        return Statistic(None, "no such download completed")
    return Statistic(float(np.quantile(values, q)))
