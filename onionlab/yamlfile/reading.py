"""Files as models: either the model, or one list of problems, each with its line."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from onionlab.errors import UserError
from onionlab.yamlfile.model import Model, json_schema
from onionlab.yamlfile.tree import Location, Node, Problem, YamlError, plain, read_tree
from onionlab.yamlfile.units import nearest, show

MAX_FILE_BYTES = 2**18
"""PyYAML needs seconds for so much, and files that people write are smaller."""

MAX_PROBLEMS = 100
MAX_ERRORS = 10_000
"""pydantic needs 2 KB for each. If a file has more, only their number is shown."""

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
"""Type of pydantic's error -> message in the words of YAML. Other types keep pydantic's message."""

AnyModel = TypeVar("AnyModel", bound=Model)


def display_name(path: Path, root: Path) -> str:
    """Return a file's path for messages: relative to the checkout if it is inside."""
    resolved, base = path.resolve(), root.resolve()
    return resolved.relative_to(base).as_posix() if resolved.is_relative_to(base) else str(path)


def read_file(
    path: Path, file: str, max_bytes: int = MAX_FILE_BYTES
) -> tuple[Node | None, list[Problem]]:
    """Return the tree of a file, or its problems; `file` is its name in messages.

    Raises:
        UserError: it cannot be read at all.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
        if len(content) > max_bytes:
            message = f"larger than {max_bytes // 2**10} KiB: no file of this kind is"
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
    path: Path, file: str, model: type[AnyModel]
) -> tuple[AnyModel | None, Node | None, list[Problem]]:
    """Return a file's model and tree, None if they are not valid, and all problems.

    Raises:
        UserError: it cannot be read at all.
    """
    tree, problems = read_file(path, file)
    if tree is None:
        return None, None, problems
    content, found = validate_tree(tree, model)
    return content, tree, problems + found


def validate_tree(
    tree: Node,
    model: type[AnyModel],
    *,
    partial: bool = False,
    suggest_from: type[Model] | None = None,
) -> tuple[AnyModel | None, list[Problem]]:
    """Return the model of a tree, or the problems.

    Args:
        tree: The values.
        model: Their model.
        partial: Whether keys can be missing.
        suggest_from: Model with the keys that messages suggest, if `model` has only some of them.
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
            continue  # There are enough items, but some are wrong and have errors of their own.
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


@functools.lru_cache(maxsize=16)
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return json_schema(model)


def _schema_at(model: type[Model], location: Location) -> dict[str, Any]:
    """Return the JSON Schema of the value at a location, {} if there is none."""
    root = found = _schema(model)
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
    """Follow a reference; of alternatives, choose the mapping or the list."""
    for choice in schema.get("anyOf", [schema]):
        if "$ref" in choice:
            return _object_schema(root, root["$defs"][choice["$ref"].rpartition("/")[2]])
        if choice.get("type") in ("object", "array"):
            return dict(choice)
    return {}


def in_order(problems: Iterable[Problem], files: Sequence[str]) -> list[Problem]:
    """Return each problem once, by file in the order of reading, then by line."""
    return sorted(dict.fromkeys(problems), key=lambda p: (files.index(p.file), p.line, p.path))


def as_user_error(file: str, problems: Sequence[Problem], hint: str) -> UserError:
    """Return all problems of a file as one error, a line each."""
    if len(problems) == 1:
        return UserError(str(problems[0]), hint)
    shown = problems[:MAX_PROBLEMS]
    lines = "\n".join(f"  {problem}" for problem in shown)
    return UserError(f"{file}: {len(problems)} things are wrong\n{lines}", hint)
