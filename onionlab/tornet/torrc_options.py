"""The options that a host's Tor reads from its torrc files, with what they include."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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


def read_options(path: str, read: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """The options of one torrc and of the files it includes, in order.

    path: as `read` takes it, which gives a file's text or raises TorrcError.

    Raises:
        TorrcError: a file is missing, or files include each other without end.
    """
    included = 0

    def options(text: str) -> Iterator[tuple[str, str]]:
        nonlocal included
        # A line that ends with a backslash goes on in the next one.
        for raw in text.replace("\\\n", " ").split("\n"):
            name, _, value = " ".join(raw.split()).partition(" ")
            if not name.strip("+/") or name.startswith("#"):
                continue
            if not value.startswith('"'):
                value = value.partition("#")[0]
            value = value.strip()
            if name.lower() != "%include":
                yield name.lstrip("+/").lower(), value
                continue
            included += 1
            if included > MOST_INCLUDES:
                raise TorrcError(f"{path} includes more than {MOST_INCLUDES} files")
            yield from options(read(value.strip('"')))

    yield from options(read(path))
