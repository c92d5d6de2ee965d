"""The types of values that only experiments have; all others are in ``yamlfile.field_types``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model

from onionlab.network.draws import MAX_SEED
from onionlab.yamlfile.field_types import Fraction, one_of
from onionlab.yamlfile.model import Model
from onionlab.yamlfile.units import nearest, show

MAX_SEEDS = 10_000
MAX_REPEATS = 1_000

REPLACED_AS_UNIT = frozenset({"pause", "deployment", "trace"})
"""Mappings that a later file replaces as a whole: their keys exclude each other."""


@dataclass(frozen=True)
class Deployment:
    """The hosts that run the variant; the others run the experiment's baseline.

    where: "all" (relays, authorities and clients, as in the paper) or "relays"; in networks of
    tornettools also "exits" or "clients"; fraction: of these, 1.0 unless the file sets another one.
    """

    where: str
    fraction: float = 1.0


@dataclass(frozen=True)
class Traced:
    """The relays that write a cell trace (docs/explanation/celltrace.md).

    where: "none", "relays" (a fraction of all of them), "roles" or "hosts"; names: of the roles or
    of the hosts.
    """

    where: str = "none"
    fraction: float = 1.0
    names: tuple[str, ...] = ()


def _word_or_item(
    words: tuple[str, ...],
    types: Mapping[str, Any],
    examples: str,
    make: Callable[[str, Any], object],
) -> BeforeValidator:
    """Return a validator of one of some words, or of a mapping with one of some keys.

    Args:
        words: What a file can have instead of the mapping.
        types: Key -> type of its value.
        examples: Mappings as a file has them, for messages.
        make: Makes the result from a word and None, or from the key and its value.
    """
    schema: Any = Literal[words]
    models: dict[str, type[Model]] = {}
    for name, kind in types.items():
        keys: dict[str, Any] = {name: (kind, ...)}
        models[name] = create_model(name, __base__=Model, **keys)
        schema |= models[name]

    def parse(value: object) -> object:
        if isinstance(value, dict) and len(value) == 1 and (key := next(iter(value))) in models:
            return make(key, getattr(models[key].model_validate(value), key))
        if isinstance(value, str) and value in words:
            return make(value, None)
        hint = nearest(value, words) if isinstance(value, str) else ""
        expected = f"{', '.join(words)} or {examples}"
        raise ValueError(f"expected {expected}, got {show(value)}{hint}")

    return BeforeValidator(parse, json_schema_input_type=schema)


def _make_deployment(where: str, share: float | None) -> Deployment:
    where = "relays" if where == "fraction" else where
    return Deployment(where) if share is None else Deployment(where, share)


def deployment() -> BeforeValidator:
    """Return a validator of all, relays or {fraction: of the relays}."""
    examples = '{fraction: "50 %"} (of the relays)'
    return _word_or_item(("all", "relays"), {"fraction": Fraction}, examples, _make_deployment)


def deployment_by_role() -> BeforeValidator:
    """Return a validator of all, relays, exits, clients, or a share of one of the last three."""
    groups = ("relays", "exits", "clients")
    examples = 'a share of these such as {relays: "50 %"}'
    types = dict.fromkeys(groups, Fraction)
    return _word_or_item(("all", *groups), types, examples, _make_deployment)


def traced(roles: tuple[str, ...]) -> BeforeValidator:
    """Return a validator of none, relays, or a mapping with one of fraction, roles and hosts."""
    types = {
        "fraction": Fraction,
        "roles": Annotated[list[Annotated[str, one_of(*roles)]], Field(min_length=1)],
        "hosts": Annotated[list[str], Field(min_length=1)],
    }

    def make(where: str, value: Any) -> Traced:
        if where == "fraction":
            return Traced("relays", value)
        return Traced(where, names=tuple(value or ()))

    examples = '{fraction: "50 %"} (of the relays), {roles: [guard, exit]}, {hosts: [relay2guard]}'
    return _word_or_item(("none", "relays"), types, examples, make)


def parse_file_names(value: object) -> tuple[str, ...]:
    """Return one file name or a list of them as a tuple. Raises ValueError."""
    listed = value if isinstance(value, list) and value else [value]
    for one in listed:
        if not isinstance(one, str) or not one.strip() or "\0" in one:
            raise ValueError(f"expected a file such as base/table1.yaml or a list, got {show(one)}")
    return tuple(listed)


_NAME = Annotated[str, Field(min_length=1)]
FileNames = Annotated[
    tuple[str, ...],
    BeforeValidator(
        parse_file_names,
        json_schema_input_type=_NAME | Annotated[list[_NAME], Field(min_length=1)],
    ),
]
"""One file name, or a list of them."""


def parse_networks(value: object) -> tuple[int, ...]:
    """Return the networks of a number n (1 to n) or of a list. Raises ValueError."""
    expected = (
        f"expected a number of networks (1 to {MAX_SEEDS}) or a list of different ones such as "
        "[1, 2, 7], got"
    )
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SEEDS:
        return tuple(range(1, value + 1))
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= MAX_SEEDS:
        raise ValueError(f"{expected} {'an empty list' if value == [] else show(value)}")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int):
            raise ValueError(f"{expected} {show(one)} in the list")
        if not 0 <= one <= MAX_SEED:
            raise ValueError(f"{expected} {one}: not from 0 to {MAX_SEED}")
    if len(set(value)) < len(value):
        twice = next(one for one in value if value.count(one) > 1)
        raise ValueError(f"{expected} {twice} twice")
    return tuple(value)


NETWORKS_SCHEMA = (
    Annotated[int, Field(ge=1, le=MAX_SEEDS)]
    | Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_SEED)]],
        Field(min_length=1, json_schema_extra={"uniqueItems": True}),
    ]
)
Networks = Annotated[
    tuple[int, ...], BeforeValidator(parse_networks, json_schema_input_type=NETWORKS_SCHEMA)
]
"""A number n (networks 1 to n) or a list of different networks. A network is its seed."""
