"""Parse the options of an action graph's vertices (doc/TGen-Options.md of TGen 1.1.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

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

# TGen searches for these words in a vertex's id, in this order. The first word that it finds is the
# vertex's kind.
_KINDS = ("start", "end", "pause", "stream", "flow", "traffic")


class LogLevel(Enum):
    """The levels of TGen's log. Each level includes the preceding ones."""

    ERROR = 1
    CRITICAL = 2
    WARNING = 3
    MESSAGE = 4
    INFO = 5
    DEBUG = 6


class Peer(NamedTuple):
    """The target of a connection: a host's name or IPv4 address, and a port."""

    name: str
    port: int


def parse_size(text: str) -> int:
    """Convert a size such as "5 KiB" or "1000" to bytes. Raises ValueError if it is invalid."""
    value = _scaled(text, _SIZE_FACTORS, default="bytes", what="size")
    if value == 0 and _SIZE_FACTORS[_split(text)[1].lower() or "bytes"] != 1:
        raise ValueError(f"{text!r}: TGen accepts a size of 0 only in bytes")
    return value


def parse_time(text: str) -> int:
    """Convert a time such as "10 seconds" or "10" to microseconds. Raises ValueError if invalid."""
    return _scaled(text, _TIME_FACTORS_NS, default="s", what="time") // 1000


def parse_times(text: str) -> tuple[int, ...]:
    """Convert a comma-separated list of times to microseconds. Raises ValueError if invalid."""
    return tuple(parse_time(part) for part in text.split(","))


def parse_port(text: str) -> int:
    """Return a TCP port. Raises ValueError if it is invalid."""
    return _parse_whole(text, "a port", 1, 2**16 - 1)


def parse_seed(text: str) -> int:
    """Return a seed of a random generator. Raises ValueError if it is invalid."""
    return _parse_whole(text, "a seed", 0, 2**32 - 1)


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Return the peers in a list such as "server1:80,server2:80".

    Raises ValueError if the list is invalid.
    """
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


def _parse_whole(text: str, what: str, minimum: int, maximum: int) -> int:
    if not (text.isascii() and text.isdigit()) or not minimum <= int(text) <= maximum:
        raise ValueError(f"{text!r} is not {what} from {minimum} to {maximum}")
    return int(text)


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


def _level(text: str) -> LogLevel:
    try:
        return LogLevel[text.upper()]
    except KeyError:
        levels = ", ".join(level.name.lower() for level in LogLevel)
        raise ValueError(f"{text!r} is not a log level: {levels}") from None


def _mode(text: str) -> str:
    mode = text.lower()
    if mode not in ("path", "graphml"):
        raise ValueError(f"{text!r} is neither 'path' nor 'graphml'")
    return mode


_STREAM_OPTIONS: dict[str, Callable[[str], Any]] = {
    "peers": parse_peers,
    "socksproxy": parse_peers,
    "socksusername": str,
    "sockspassword": str,
    "sendsize": parse_size,
    "recvsize": parse_size,
    "timeout": parse_time,
    "stallout": parse_time,
    "packetmodelpath": str,
    "packetmodelmode": _mode,
    "markovmodelseed": parse_seed,
    "socksauthseed": parse_seed,
}
_FLOW_OPTIONS: dict[str, Callable[[str], Any]] = {**_STREAM_OPTIONS, "streammodelpath": str}
_TRAFFIC_OPTIONS: dict[str, Callable[[str], Any]] = {**_FLOW_OPTIONS, "flowmodelpath": str}
_OPTIONS: dict[str, dict[str, Callable[[str], Any]]] = {
    "start": {
        "serverport": parse_port,
        "time": parse_time,
        "heartbeat": parse_time,
        "loglevel": _level,
        **_TRAFFIC_OPTIONS,
    },
    "pause": {"time": parse_times},
    "stream": _STREAM_OPTIONS,
    "flow": _FLOW_OPTIONS,
    "traffic": _TRAFFIC_OPTIONS,
}
"""The supported kinds of vertices, and their options with the functions that parse them."""


def vertex_kind(vertex: str) -> str:
    """Return the kind of a vertex, a part of the vertex's id. Raises ValueError if unsupported."""
    kind = next((kind for kind in _KINDS if kind in vertex), None)
    if kind not in _OPTIONS:
        raise ValueError(f"vertex {vertex!r} is not supported; supported are {', '.join(_OPTIONS)}")
    return kind


def parse_options(vertex: str, kind: str, data: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsed options of a vertex by their names in lower case.

    Raises ValueError if an option is invalid or not supported.
    """
    options = {}
    for name, text in data.items():
        parse = _OPTIONS[kind].get(name.lower())
        if parse is None:
            raise ValueError(
                f"vertex {vertex!r}: attribute {name!r} is not supported; supported here are "
                f"{', '.join(_OPTIONS[kind])}"
            )
        try:
            options[name.lower()] = parse(text)
        except ValueError as error:
            raise ValueError(f"vertex {vertex!r}: attribute {name!r}: {error}") from None
    return options
