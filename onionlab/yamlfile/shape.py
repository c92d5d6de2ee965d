"""The shape of the models as plain data: which keys there are, and what each one takes.

Unknown keys, the reference and the messages about missing keys all read it, so they follow the
models without a second list of keys.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from onionlab.yamlfile.kinds import Kind, nearest
from onionlab.yamlfile.model import Model
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import show


@dataclass(frozen=True)
class Shape:
    """Exactly one of: a scalar (kind), a model's mapping (model), a mapping of free keys or a list.

    free_key: the kind of the free keys; item: the shape of their values, or of a list's items;
    nullable: null stands for "not given" (it takes back what an extended file gave).
    """

    kind: Kind | None = None
    model: type[Model] | None = None
    free_key: Kind | None = None
    item: Shape | None = None
    nullable: bool = False

    @property
    def expected(self) -> str:
        """For messages: what should stand there."""
        if self.kind is not None:
            return self.kind.expected
        if self.model is not None:
            word = f"{self.model.word} or " if self.model.word is not None else ""
            return f"{word}a mapping with the keys {', '.join(keys_of(self.model))}"
        item = self.item.expected if self.item is not None else "anything"
        if self.free_key is not None:
            return "a mapping (name: value)"
        return f"a list, each item {item}"


@dataclass(frozen=True)
class Key:
    """One key of a mapping; default: as the YAML would have it, or text in parentheses, or None."""

    name: str
    shape: Shape
    required: bool
    default: object
    description: str


def shape_of_model(model: type[Model]) -> Shape:
    """The shape of a model's mapping."""
    return Shape(model=model)


@functools.cache
def keys_of(model: type[Model]) -> Mapping[str, Key]:
    """Return the keys that a file may use, in the order of the model."""
    keys = {}
    for attribute, info in model.model_fields.items():
        if attribute in model.derived:
            continue
        name = info.alias or attribute
        filled_in = model.filled_in.get(attribute)
        keys[name] = Key(
            name=name,
            shape=_shape(info.annotation, list(info.metadata)),
            required=info.is_required() and filled_in is None,
            default=filled_in if info.is_required() else info.default,
            description=info.description or "",
        )
    return keys


def expected_at(shape: Shape, location: tuple[str | int, ...]) -> str:
    """What is expected at a place below a shape."""
    for part in location:
        if shape.model is not None:
            key = keys_of(shape.model).get(str(part))
            if key is None:
                return "nothing"
            shape = key.shape
        elif shape.item is not None:
            shape = shape.item
        else:
            break
    return shape.expected


def unknown_keys(node: Node, shape: Shape) -> Iterator[Problem]:
    """Every key of a tree that the models do not know, with the nearest one that they do."""
    if shape.kind is not None:
        if shape.kind.check_item is not None and isinstance(node.value, dict):
            for option, child in node.value.items():
                message = shape.kind.check_item(option, child.value)
                if message is not None:
                    yield child.problem(message)
        return
    known = keys_of(shape.model) if shape.model is not None else None
    for name, child in node.children():
        if known is None:
            if shape.item is not None:
                yield from unknown_keys(child, shape.item)
        elif isinstance(name, int):
            return  # a list where a mapping belongs: the models say so
        elif name in known:
            yield from unknown_keys(child, known[name].shape)
        else:
            suggestion = nearest(name, known) or f"; the keys here are {', '.join(known)}"
            yield child.problem(f"unknown key{suggestion}")


def _shape(annotation: Any, metadata: list[Any]) -> Shape:
    kind = next((one for one in metadata if isinstance(one, Kind)), None)
    if kind is not None:
        return Shape(kind=kind)
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0], list(arguments[1:]))
    if origin in (Union, UnionType):
        (only,) = (one for one in arguments if one is not NoneType)
        return replace(_shape(only, []), nullable=True)
    if origin is dict:
        return Shape(free_key=_shape(arguments[0], []).kind, item=_shape(arguments[1], []))
    if origin is tuple:
        return Shape(item=_shape(arguments[0], []))
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return Shape(model=annotation)
    raise TypeError(f"a model has a field of a form that has no shape: {show(str(annotation))}")
