"""The kinds of value that only experiments have; all others are in ``onionlab.yamlfile.kinds``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onionlab.network.draws import MAX_SEED
from onionlab.yamlfile import units
from onionlab.yamlfile.kinds import Kind, fraction, nearest
from onionlab.yamlfile.units import show

MAX_SEEDS = 10_000
MAX_REPEATS = 1_000

WHOLE = frozenset({"pause", "deployment", "trace"})
"""Mappings that a later file replaces as a whole: their keys exclude each other."""


@dataclass(frozen=True)
class Deployment:
    """Which hosts run the variant; the others run the experiment's baseline.

    where: "all" (relays, authorities and clients, as in the paper) or "relays"; in networks of
    tornettools also "exits" or "clients"; fraction: of these, 1.0 unless the file says otherwise.
    """

    where: str
    fraction: float = 1.0


@dataclass(frozen=True)
class Traced:
    """Which relays write a cell trace (docs/explanation/celltrace.md).

    where: "none", "relays" (a fraction of all of them), "roles" or "hosts"; names: of the roles or
    of the hosts.
    """

    where: str = "none"
    fraction: float = 1.0
    names: tuple[str, ...] = ()


def deployment() -> Kind:
    """all, relays or {fraction: of the relays}."""
    expected = 'all, relays, or {fraction: "50 %"} (of the relays)'

    def parse(value: object) -> Deployment:
        if value == "all" or value == "relays":
            return Deployment(str(value))
        if isinstance(value, dict) and set(value) == {"fraction"}:
            return Deployment("relays", units.parse_fraction(value["fraction"]))
        suggestion = nearest(value, ("all", "relays")) if isinstance(value, str) else ""
        raise ValueError(f"expected {expected}, got {show(value)}{suggestion}")

    schema = {
        "anyOf": [
            {"enum": ["all", "relays"]},
            {
                "type": "object",
                "properties": {"fraction": fraction().schema},
                "required": ["fraction"],
                "additionalProperties": False,
            },
        ]
    }
    return Kind("all, relays, or {fraction: fraction}", expected, parse, schema)


def deployment_by_role() -> Kind:
    """all, relays, exits, clients, or one of the last three with a fraction of them."""
    some = ("relays", "exits", "clients")
    expected = 'all, relays, exits, clients, or a share of these such as {relays: "50 %"}'

    def parse(value: object) -> Deployment:
        if isinstance(value, str) and value in ("all", *some):
            return Deployment(value)
        if isinstance(value, dict) and len(value) == 1:
            ((where, share),) = value.items()
            if where in some:
                return Deployment(where, units.parse_fraction(share))
        suggestion = nearest(value, ("all", *some)) if isinstance(value, str) else ""
        raise ValueError(f"expected {expected}, got {show(value)}{suggestion}")

    shares = [
        {
            "type": "object",
            "properties": {where: fraction().schema},
            "required": [where],
            "additionalProperties": False,
        }
        for where in some
    ]
    schema = {"anyOf": [{"enum": ["all", *some]}, *shares]}
    return Kind("all, relays, exits, clients, or {one of these: fraction}", expected, parse, schema)


def traced(roles: tuple[str, ...]) -> Kind:
    """none, relays, or a mapping with one of fraction, roles and hosts."""
    expected = (
        'none, relays, {fraction: "50 %"} (of the relays), {roles: [guard, exit]} or '
        "{hosts: [relay2guard]}"
    )

    def parse(value: object) -> Traced:
        if isinstance(value, Traced):
            return value
        if value == "none" or value == "relays":
            return Traced(str(value))
        if isinstance(value, dict) and len(value) == 1:
            ((key, inner),) = value.items()
            if key == "fraction":
                return Traced("relays", units.parse_fraction(inner))
            if key in ("roles", "hosts") and isinstance(inner, list) and inner:
                for one in inner:
                    if not isinstance(one, str) or (key == "roles" and one not in roles):
                        suggestion = nearest(str(one), roles) if key == "roles" else ""
                        raise ValueError(f"expected names of {key}, got {show(one)}{suggestion}")
                return Traced(key, names=tuple(inner))
        suggestion = nearest(value, ("none", "relays")) if isinstance(value, str) else ""
        raise ValueError(f"expected {expected}, got {show(value)}{suggestion}")

    def only(key: str, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {key: schema},
            "required": [key],
            "additionalProperties": False,
        }

    schema = {
        "anyOf": [
            {"enum": ["none", "relays"]},
            only("fraction", fraction().schema),
            only("roles", {"type": "array", "items": {"enum": list(roles)}, "minItems": 1}),
            only("hosts", {"type": "array", "items": {"type": "string"}, "minItems": 1}),
        ]
    }
    noun = "none, relays, {fraction: fraction}, {roles: list of roles} or {hosts: list of names}"
    return Kind(noun, expected, parse, schema)


def file_names() -> Kind:
    """One file name, or a list of them: always a tuple."""
    expected = "the name of a file such as base/table1.yaml, or a list of names"

    def parse(value: object) -> tuple[str, ...]:
        listed = value if isinstance(value, list) and value else [value]
        for one in listed:
            if not isinstance(one, str) or not one.strip() or "\0" in one:
                raise ValueError(f"expected {expected}, got {show(one)}")
        return tuple(listed)

    text_schema = {"type": "string", "minLength": 1}
    schema = {"anyOf": [text_schema, {"type": "array", "items": text_schema, "minItems": 1}]}
    return Kind("file name, or list of them", expected, parse, schema)


def networks() -> Kind:
    """A number n (networks 1 to n) or a list of different networks. A network is its seed."""
    expected = (
        f"a number of networks (1 to {MAX_SEEDS}) or a list of different ones such as [1, 2, 7]"
    )

    def parse(value: object) -> tuple[int, ...]:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEEDS:
            return tuple(range(1, value + 1))
        if isinstance(value, (list, tuple)) and 1 <= len(value) <= MAX_SEEDS:
            whole = [one for one in value if isinstance(one, int) and not isinstance(one, bool)]
            if len(whole) < len(value):
                wrong = next(
                    one for one in value if isinstance(one, bool) or not isinstance(one, int)
                )
                raise ValueError(f"expected {expected}, got {show(wrong)} in the list")
            before: set[int] = set()
            for one in whole:
                if not 0 <= one <= MAX_SEED:
                    raise ValueError(f"expected {expected}, got {one}: not from 0 to {MAX_SEED}")
                if one in before:
                    raise ValueError(f"expected {expected}, got {one} twice")
                before.add(one)
            return tuple(whole)
        shown = "an empty list" if value == [] else show(value)
        raise ValueError(f"expected {expected}, got {shown}")

    schema = {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MAX_SEEDS},
            {
                "type": "array",
                "items": {"type": "integer", "minimum": 0, "maximum": MAX_SEED},
                "minItems": 1,
                "uniqueItems": True,
            },
        ]
    }
    return Kind("whole number, or list of them", expected, parse, schema)
