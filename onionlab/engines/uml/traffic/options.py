"""Parse TGen's option values (doc/TGen-Options.md of TGen 1.1.2): sizes, times, peers."""

from __future__ import annotations

from typing import NamedTuple

_SIZE_FACTORS = {
    **dict.fromkeys(("b", "byte", "bytes"), 1),
    **dict.fromkeys(("kb", "kilobyte", "kilobytes"), 10**3),
    **dict.fromkeys(("mb", "megabyte", "megabytes"), 10**6),
    **dict.fromkeys(("gb", "gigabyte", "gigabytes"), 10**9),
    **dict.fromkeys(("tb", "terabyte", "terabytes"), 10**12),
    **dict.fromkeys(("kib", "kibibyte", "kibibytes"), 2**10),
    **dict.fromkeys(("mib", "mebibyte", "mebibytes"), 2**20),
    **dict.fromkeys(("gib", "gibibyte", "gibibytes"), 2**30),
    **dict.fromkeys(("tib", "tebibyte", "tebibytes"), 2**40),
}

_TIME_FACTORS_NS = {
    **dict.fromkeys(("nanosecond", "nanoseconds", "nsec", "nsecs", "ns"), 1),
    **dict.fromkeys(("microsecond", "microseconds", "usec", "usecs", "us"), 10**3),
    **dict.fromkeys(("millisecond", "milliseconds", "msec", "msecs", "ms"), 10**6),
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), 10**9),
    **dict.fromkeys(("minute", "minutes", "min", "mins", "m"), 60 * 10**9),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), 3600 * 10**9),
}

_LIMIT = 2**63


class Peer(NamedTuple):
    """The target of a connection: a host's name or IPv4 address, and a port."""

    name: str
    port: int


def parse_size(text: str) -> int:
    """Return the bytes of "5 KiB" or "1000". Raises ValueError."""
    value = _scaled(text, _SIZE_FACTORS, default="bytes", what="size")
    if value == 0 and _SIZE_FACTORS[_split(text)[1].lower() or "bytes"] != 1:
        raise ValueError(f"{text!r}: TGen accepts a size of 0 only in bytes")
    return value


def parse_time(text: str) -> int:
    """Return the microseconds of "10 seconds" or "10". Raises ValueError."""
    return _scaled(text, _TIME_FACTORS_NS, default="s", what="time") // 1000


def parse_times(text: str) -> tuple[int, ...]:
    """Return the microseconds of each time of a comma-separated list. Raises ValueError."""
    return tuple(parse_time(part) for part in text.split(","))


def parse_port(text: str) -> int:
    """Return a TCP port. Raises ValueError."""
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 2**16:
        raise ValueError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def parse_seed(text: str) -> int:
    """Return a seed of a random generator. Raises ValueError."""
    if not (text.isascii() and text.isdigit()) or not int(text) < 2**32:
        raise ValueError(f"{text!r} is not a seed from 0 to {2**32 - 1}")
    return int(text)


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Return the peers of "server1:80,server2:80". Raises ValueError."""
    peers = []
    for part in text.split(","):
        if part:
            name, colon, port = part.partition(":")
            if not (name and colon):
                raise ValueError(f"{part!r} is not a peer as in 'server1:80'")
            peers.append(Peer(name, parse_port(port)))
    if not peers:
        raise ValueError("the list of peers is empty")
    return tuple(peers)


def _split(text: str) -> tuple[str, str]:
    number, _, unit = text.partition(" ")
    return number, unit


def _scaled(text: str, factors: dict[str, int], *, default: str, what: str) -> int:
    number, unit = _split(text)
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not a {what} as in '10 {default}'")
    factor = factors.get(unit.lower() if " " in text else default)
    if factor is None:
        raise ValueError(f"{text!r} has an unknown unit; known are {', '.join(factors)}")
    value = int(number) * factor
    if value >= _LIMIT:
        raise ValueError(f"{text!r} is too large")
    return value
