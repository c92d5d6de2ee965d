"""Parse the options of an action graph's vertices (doc/TGen-Options.md of TGen 1.1.2)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from .draws import GlibRandom

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


class LogLevel(IntEnum):
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
    return _scaled(text, _SIZE_FACTORS, default="bytes", what="size")


def parse_time(text: str) -> int:
    """Convert a time such as "10 seconds" or "10" to microseconds. Raises ValueError if invalid."""
    return _scaled(text, _TIME_FACTORS_NS, default="s", what="time") // 1000


def _scaled(text: str, factors: dict[str, int], *, default: str, what: str) -> int:
    number, space, unit = text.partition(" ")
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not a {what} as in '10 {default}'")
    factor = factors.get(unit.lower() if space else default)
    if factor is None:
        raise ValueError(f"{text!r} has an unknown unit; known are {', '.join(factors)}")
    value = int(number) * factor
    if value >= _LIMIT:
        raise ValueError(f"{text!r} is too large")
    return value


def _parse_times(text: str) -> tuple[int, ...]:
    return tuple(parse_time(part) for part in text.split(","))


def _parse_whole(what: str, minimum: int, maximum: int, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not minimum <= int(text) <= maximum:
        raise ValueError(f"{text!r} is not {what} from {minimum} to {maximum}")
    return int(text)


_parse_port = functools.partial(_parse_whole, "a port", 1, 2**16 - 1)


def _parse_seed(text: str) -> GlibRandom:
    return GlibRandom(_parse_whole("a seed", 0, 2**32 - 1, text))


def _parse_peers(text: str) -> tuple[Peer, ...]:
    peers = []
    for part in filter(None, text.split(",")):
        name, colon, port = part.partition(":")
        if not (name and colon):
            raise ValueError(f"{part!r} is not a peer as in 'server1:80'")
        peers.append(Peer(name, _parse_port(port)))
    if not peers:
        raise ValueError("the list of peers is empty")
    return tuple(peers)


def _parse_word(what: str, words: Mapping[str, Any], text: str) -> Any:
    if text.lower() not in words:
        raise ValueError(f"{text!r} is not {what}: {', '.join(words)}")
    return words[text.lower()]


_STREAM_OPTIONS: dict[str, Callable[[str], Any]] = {
    "peers": _parse_peers,
    "socksproxy": _parse_peers,
    "socksusername": str,
    "sockspassword": str,
    "sendsize": parse_size,
    "recvsize": parse_size,
    "timeout": parse_time,
    "stallout": parse_time,
    "packetmodelpath": str,
    "packetmodelmode": functools.partial(
        _parse_word, "a mode", {"path": "path", "graphml": "graphml"}
    ),
    "markovmodelseed": _parse_seed,
    "socksauthseed": _parse_seed,
}
_FLOW_OPTIONS: dict[str, Callable[[str], Any]] = {**_STREAM_OPTIONS, "streammodelpath": str}
_TRAFFIC_OPTIONS: dict[str, Callable[[str], Any]] = {**_FLOW_OPTIONS, "flowmodelpath": str}
_OPTIONS: dict[str, dict[str, Callable[[str], Any]]] = {
    "start": {
        "serverport": _parse_port,
        "time": parse_time,
        "heartbeat": parse_time,
        "loglevel": functools.partial(
            _parse_word, "a log level", {level.name.lower(): level for level in LogLevel}
        ),
        **_TRAFFIC_OPTIONS,
    },
    "pause": {"time": _parse_times},
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

    A seed becomes a random generator. Raises ValueError if an option is invalid or not supported.
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
