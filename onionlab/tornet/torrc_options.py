"""Read the options of a host's Tor from its torrc files and the files that they include."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onionlab.tornet.host_files import FileError
from onionlab.yamlfile.units import show

# Bytes per unit, in lower case, from src/lib/confmgt/unitparse.c of Tor 0.4.9.
_MEMORY_UNITS = {**dict.fromkeys(("", "b", "byte", "bytes"), 1), "m": 2**20}
for _power, _prefix in enumerate(("kilo", "mega", "giga", "tera"), start=1):
    _MEMORY_UNITS[f"{_prefix[0]}b"] = 2 ** (10 * _power)
    for _name in (_prefix, _prefix[0]):
        _MEMORY_UNITS |= dict.fromkeys((f"{_name}byte", f"{_name}bytes"), 2 ** (10 * _power))
        _MEMORY_UNITS |= dict.fromkeys((f"{_name}bit", f"{_name}bits"), 2 ** (10 * _power - 3))

_QUANTITY = re.compile(
    r"(?:([0-9]+)|((?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?))\s*([a-z]*)",
    re.ASCII | re.IGNORECASE,
)
_MAX_BYTES = 2**63 - 1

MAX_INCLUDES = 100
"""The maximum number of files that a host's torrc includes. tornettools writes four such files."""


@dataclass(frozen=True)
class Options:
    """Options and values in the order in which Tor reads them. Tor ignores the case of names."""

    pairs: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Return every value of an option that may occur several times."""
        return [value for found, value in self.pairs if found.lstrip("+/").lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """Return the effective value of an option, which is its last value; None if not set."""
        found = self.all(name)
        return found[-1] if found else None


def parse_memory(text: str) -> int:
    """Return the bytes of a quantity such as "1 MBits" or "0.25 MBytes", with Tor's rounding.

    Raises:
        FileError: Tor would reject the quantity.
    """
    found = _QUANTITY.fullmatch(text)
    factor = _MEMORY_UNITS.get(found[3].lower()) if found is not None else None
    if found is not None and factor is not None:
        # Tor multiplies a fraction by the unit's bytes as a double and truncates the product.
        amount = int(found[1]) * factor if found[1] else float(found[2]) * factor
        if amount <= _MAX_BYTES:
            return int(amount)
    raise FileError(f"{show(text)} is not a number of bytes as Tor reads it, such as 1 MBytes")


def read_lines(path: str, read: Callable[[str], str]) -> Iterator[tuple[str, str, str]]:
    """Yield file, option and value of each line of a torrc and of its included files, in order.

    path: an argument for `read`, which returns a file's text or raises FileError.

    Raises:
        FileError: `read` raises it, or more than MAX_INCLUDES files are included, for instance
            because two files include each other.
    """
    included = 0

    def lines(file: str) -> Iterator[tuple[str, str, str]]:
        nonlocal included
        # A line that ends with a backslash continues on the next line.
        for raw in read(file).replace("\\\n", " ").split("\n"):
            name, _, value = " ".join(raw.split()).partition(" ")
            if not name.strip("+/") or name.startswith("#"):
                continue
            if not value.startswith('"'):
                value = value.partition("#")[0]
            value = value.strip()
            if name.lower() != "%include":
                yield file, name, value
                continue
            included += 1
            if included > MAX_INCLUDES:
                raise FileError(f"{path} includes more than {MAX_INCLUDES} files")
            yield from lines(value.strip('"'))

    yield from lines(path)
