"""Read YAML files as pydantic models. The result is a model, or a list of problems with lines."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from onionlab.errors import UserError
from onionlab.yamlfile.field_types import RESOLVED
from onionlab.yamlfile.tree import Location, Node, Problem, YamlError, plain, read_tree
from onionlab.yamlfile.units import nearest, show

key: Any = Field
"""Declares a key of a file. A default is written as in a file, so its type can be another one."""


class Model(BaseModel):
    """Base of all models. They are strict and immutable, and defaults are parsed like values."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


AnyModel = TypeVar("AnyModel", bound=Model)


@functools.lru_cache(maxsize=16)
def json_schema(model: Any, *, partial: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a model or a dataclass. With `partial`, no key is required."""
    generator = _PartialSchema if partial else _StrictSchema
    return TypeAdapter(model).json_schema(schema_generator=generator)


def load_resolved(model: type[AnyModel], values: object) -> AnyModel:
    """Return a model from the result of `model_dump(mode="json")`.

    Raises:
        ValidationError: ``values`` do not fit this version of the model.
    """
    return model.model_validate(values, strict=False, context=RESOLVED, by_name=True)


class _StrictSchema(GenerateJsonSchema):
    """JSON Schema without pydantic's titles, which only repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Return a schema that rejects other names if a mapping's names have to match a pattern."""
        result = super().dict_schema(schema)
        return result | ({"additionalProperties": False} if "patternProperties" in result else {})


class _PartialSchema(_StrictSchema):
    def field_is_required(self, field: Any, total: bool) -> bool:
        return False


MAX_FILE_BYTES = 2**18
"""Maximum size of a file. PyYAML needs seconds for larger files, which nobody writes by hand."""

MAX_PROBLEMS = 100
MAX_ERRORS = 10_000
"""Maximum number of pydantic's errors that are read, because each error needs 2 KB of memory. If
there are more errors, only their number is shown."""

_MESSAGES = {
    "missing": "missing",
    "model_type": "expected a mapping (key: value)",
    "dict_type": "expected a mapping (name: value)",
    "tuple_type": "expected a list",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "string_too_short": "expected text",
    "string_pattern_mismatch": "expected text that matches {pattern}",
    "literal_error": "expected one of {words}",
    "greater_than": "expected more than {gt:g}",
    "greater_than_equal": "expected {ge} or more",
    "less_than_equal": "expected {le} or less",
    "too_short": "expected {min_length} or more entries",
    "too_long": "expected {max_length} or fewer entries",
    "value_error": "{error}",
}
"""Type of a pydantic error -> message in terms of YAML. Other types keep pydantic's message."""


def display_name(path: Path, root: Path) -> str:
    """Return a file's path for messages, relative to ``root`` if the file is in this folder."""
    resolved, base = path.resolve(), root.resolve()
    return resolved.relative_to(base).as_posix() if resolved.is_relative_to(base) else str(path)


def read_file(
    path: Path, file: str, max_bytes: int = MAX_FILE_BYTES
) -> tuple[Node | None, list[Problem]]:
    """Return the tree of a file (None if the file has problems) and the problems.

    `file` is the name of the file in messages.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
        if len(content) > max_bytes:
            message = f"expected at most {max_bytes // 2**10} KiB, the limit for files of this kind"
            return None, [Problem(file, 1, "", message)]
        return read_tree(content.decode("utf-8-sig"), file), []
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return None, [Problem(file, line, "", "not text in UTF-8")]
    except YamlError as error:
        return None, error.problems


def read_model(
    path: Path,
    file: str,
    model: type[AnyModel],
    hint: str,
    check: Callable[[AnyModel, Node], Iterable[Problem]] = lambda content, tree: (),
    max_bytes: int = MAX_FILE_BYTES,
) -> tuple[AnyModel, Node]:
    """Return a file's model and its tree.

    file: the file's name in messages. hint: what a user can do about errors. check: function that
    returns further problems; it is called only if each value is valid.

    Raises:
        UserError: the file cannot be read or has errors, which are all listed, one per line.
    """
    tree, problems = read_file(path, file, max_bytes)
    content = None
    if tree is not None:
        content, problems = validate_tree(tree, model)
        if content is not None:
            problems += itertools.islice(check(content, tree), MAX_PROBLEMS)
    if problems or content is None or tree is None:
        raise as_user_error(file, in_order(problems, [file]), hint)
    return content, tree


def validate_tree(
    tree: Node,
    model: type[AnyModel],
    *,
    partial: bool = False,
    suggest_from: type[Model] | None = None,
) -> tuple[AnyModel | None, list[Problem]]:
    """Return the model of a tree (None if the tree is not valid) and the problems.

    partial: whether required keys may be missing. suggest_from: model whose keys are suggested in
    messages about unknown keys, if `model` describes only a part of the file.
    """
    try:
        return model.model_validate(plain(tree)), []
    except ValidationError as error:
        if error.error_count() > MAX_ERRORS:
            return None, [tree.problem(f"{error.error_count()} values are wrong or missing")]
        found = error.errors(include_url=False)
    problems: list[Problem] = []
    for one in found:
        if partial and one["type"] == "missing":
            continue
        if one["type"] == "too_short" and len(one["input"]) >= one["ctx"]["min_length"]:
            continue  # pydantic does not count invalid items, which have their own errors.
        location = tuple(part for part in one["loc"] if part != "[key]")
        problems.append(tree.locate(location, _message(one, location, suggest_from or model)))
        if len(problems) == MAX_PROBLEMS:
            break
    return None, problems


def _message(error: ErrorDetails, location: Location, model: type[Model]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = _schema_at(model, location[:-1]).get("properties", {})
        other = f"; the keys here are {', '.join(known)}"
        return f"unknown key{nearest(str(location[-1]), known) or other}"
    words = re.findall("'([^']*)'", str(context.get("expected")))
    message = error["msg"]
    if kind in _MESSAGES:
        message = _MESSAGES[kind].format(**context, words=", ".join(words))
    if kind == "missing":
        return f"{message}: {_schema_at(model, location).get('description', 'it is required')}"
    if kind in ("value_error", "too_short", "too_long"):
        return message
    hint = nearest(error["input"], words) if isinstance(error["input"], str) else ""
    return f"{message}, got {show(error['input'])}{hint}"


def _schema_at(model: type[Model], location: Location) -> dict[str, Any]:
    """Return the JSON Schema of the value at a location; {} if there is no such value."""
    root = found = json_schema(model)
    for part in location:
        found = _object_schema(root, found)
        below = [
            found.get("properties", {}).get(part),
            found.get("items"),
            found.get("additionalProperties"),
            *found.get("patternProperties", {}).values(),
        ]
        found = next((one for one in below if isinstance(one, dict)), {})
    return {**_object_schema(root, found), **found}


def _object_schema(root: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a mapping or a list, or {} if ``schema`` describes another value.

    References are followed. If there are alternatives, the first mapping or list is returned.
    """
    for choice in schema.get("anyOf", [schema]):
        if "$ref" in choice:
            return _object_schema(root, root["$defs"][choice["$ref"].rpartition("/")[2]])
        if choice.get("type") in ("object", "array"):
            return dict(choice)
    return {}


def in_order(problems: Iterable[Problem], files: Sequence[str]) -> list[Problem]:
    """Return the problems without duplicates, sorted by file (in the order of `files`) and line."""
    return sorted(dict.fromkeys(problems), key=lambda p: (files.index(p.file), p.line, p.path))


def as_user_error(file: str, problems: Sequence[Problem], hint: str) -> UserError:
    """Return all problems of a file as one error with a line for each."""
    if len(problems) == 1:
        return UserError(str(problems[0]), hint)
    shown = problems[:MAX_PROBLEMS]
    lines = "\n".join(f"  {problem}" for problem in shown)
    return UserError(f"{file}: {len(problems)} things are wrong\n{lines}", hint)
