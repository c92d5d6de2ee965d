"""The options that a host's Tor reads from its torrc files, with what they include."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onionlab.yamlfile.units import show

# src/lib/confmgt/unitparse.c of Tor 0.4.9: bytes of each unit, in lower case.
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

MOST_INCLUDES = 100
"""Of one host; tornettools writes four."""


class TorrcError(Exception):
    """What is wrong with a torrc, as a sentence."""


@dataclass(frozen=True)
class Options:
    """Options in the order in which Tor reads them; names in lower case, as Tor compares them."""

    pairs: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Every value of an option that may stand several times."""
        return [value for found, value in self.pairs if found == name.lower()]

    def get(self, name: str) -> str | None:
        """The value that counts: the last one; None where there is none."""
        found = self.all(name)
        return found[-1] if found else None

    def is_on(self, name: str) -> bool:
        """Whether an option is 1."""
        return self.get(name) == "1"


def parse_memory(text: str) -> int:
    """Return the bytes of a quantity such as "1 MBits" or "0.25 MBytes", as Tor counts them.

    Raises:
        TorrcError: Tor would refuse it.
    """
    found = _QUANTITY.fullmatch(text)
    factor = _MEMORY_UNITS.get(found[3].lower()) if found is not None else None
    if found is not None and factor is not None:
        # Tor multiplies a fraction as a double and cuts it off.
        amount = int(found[1]) * factor if found[1] else float(found[2]) * factor
        if amount <= _MAX_BYTES:
            return int(amount)
    raise TorrcError(f"{show(text)} is not a number of bytes as Tor reads it, such as 1 MBytes")


def read_options(path: str, read: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield the options, in lower case, and values of `read_lines`."""
    return ((name.lstrip("+/").lower(), value) for _, name, value in read_lines(path, read))


def read_lines(path: str, read: Callable[[str], str]) -> Iterator[tuple[str, str, str]]:
    """Yield file, option and value of the lines of a torrc and of what it includes, in order.

    path: as `read` takes it, which gives a file's text or raises TorrcError.

    Raises:
        TorrcError: a file is missing, or files include each other without end.
    """
    included = 0

    def lines(file: str) -> Iterator[tuple[str, str, str]]:
        nonlocal included
        # A line that ends with a backslash goes on in the next one.
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
            if included > MOST_INCLUDES:
                raise TorrcError(f"{path} includes more than {MOST_INCLUDES} files")
            yield from lines(value.strip('"'))

    yield from lines(path)
