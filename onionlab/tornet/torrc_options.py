"""Read the options of a host's Tor from its torrc files and the files that they include."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onionlab.yamlfile.units import show

# Bytes per unit, in lower case, from src/lib/confmgt/unitparse.c of Tor 0.4.9.
_MEMORY_UNITS = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    "m": 2**20,
    **{
        unit: factor
        for short, long, bytes_of in (
            ("k", "kilo", 2**10),
            ("m", "mega", 2**20),
            ("g", "giga", 2**30),
            ("t", "tera", 2**40),
        )
        for unit, factor in (
            (f"{short}b", bytes_of),
            *((f"{prefix}byte{s}", bytes_of) for prefix in (short, long) for s in ("", "s")),
            *((f"{prefix}bit{s}", bytes_of // 8) for prefix in (short, long) for s in ("", "s")),
        )
    },
}
_QUANTITY = re.compile(
    r"(?:([0-9]+)|((?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?))\s*([a-z]*)",
    re.ASCII | re.IGNORECASE,
)
_MAX_BYTES = 2**63 - 1

MAX_INCLUDES = 100
"""The limit for one host. tornettools writes four."""


class TorrcError(Exception):
    """An error in a torrc; the message is a sentence."""


@dataclass(frozen=True)
class Options:
    """Options in the order in which Tor reads them. Names are in lower case: Tor ignores case."""

    pairs: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Return every value of an option that may occur several times."""
        return [value for found, value in self.pairs if found == name.lower()]

    def get(self, name: str) -> str | None:
        """Return the effective value of an option, the last one, or None."""
        found = self.all(name)
        return found[-1] if found else None

    def is_on(self, name: str) -> bool:
        """Return whether an option is 1."""
        return self.get(name) == "1"


def parse_memory(text: str) -> int:
    """Return the bytes of a quantity such as "1 MBits" or "0.25 MBytes", as Tor computes them.

    Raises:
        TorrcError: Tor would reject it.
    """
    found = _QUANTITY.fullmatch(text)
    factor = _MEMORY_UNITS.get(found[3].lower()) if found is not None else None
    if found is not None and factor is not None:
        # Tor multiplies a fraction as a double and truncates it.
        amount = int(found[1]) * factor if found[1] else float(found[2]) * factor
        if amount <= _MAX_BYTES:
            return int(amount)
    raise TorrcError(f"{show(text)} is not a number of bytes as Tor reads it, such as 1 MBytes")


def read_options(path: str, read: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield the options, in lower case, and values of `read_lines`."""
    return ((name.lstrip("+/").lower(), value) for _, name, value in read_lines(path, read))


def read_lines(path: str, read: Callable[[str], str]) -> Iterator[tuple[str, str, str]]:
    """Yield file, option and value of each line of a torrc and of its included files, in order.

    path: an argument for `read`, which returns a file's text or raises TorrcError.

    Raises:
        TorrcError: a file is missing, or files include each other endlessly.
    """
    included = 0

    def lines(file: str) -> Iterator[tuple[str, str, str]]:
        nonlocal included
        # A line that ends with a backslash continues on the next one.
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
                raise TorrcError(f"{path} includes more than {MAX_INCLUDES} files")
            yield from lines(value.strip('"'))

    yield from lines(path)
