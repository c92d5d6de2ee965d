"""From the text of a file to its model, or to one list of what is wrong with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from onionlab.errors import UserError
from onionlab.yamlfile.model import Model
from onionlab.yamlfile.shape import expected_at, shape_of_model, unknown_keys
from onionlab.yamlfile.tree import Node, Problem, YamlError, plain, read_tree
from onionlab.yamlfile.units import show

LARGEST_BYTES = 2**18
"""Of a file: what people write by hand. PyYAML takes seconds for so much."""

MOST_PROBLEMS = 100
"""That are looked for and shown."""
MAX_ERRORS = 10_000
"""Of pydantic, which needs 2 KB for each: a file with more is not described value by value."""

AnyModel = TypeVar("AnyModel", bound=Model)


def display_name(path: Path, root: Path) -> str:
    """Return a file's path for messages: relative to the checkout if it is inside."""
    resolved, base = path.resolve(), root.resolve()
    return resolved.relative_to(base).as_posix() if resolved.is_relative_to(base) else str(path)


def read_file(path: Path, file: str) -> tuple[Node | None, list[Problem]]:
    """The tree of one file, or what is wrong with its YAML; `file` is the name that problems show.

    Raises:
        UserError: it cannot be read at all.
    """
    try:
        content = _content(path)
        if content is None:
            message = f"larger than {LARGEST_BYTES // 2**10} KiB: no file of this kind is"
            return None, [Problem(file, 1, "", message)]
        return read_tree(content.decode("utf-8-sig"), file), []
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return None, [Problem(file, line, "", "not text in UTF-8")]
    except YamlError as error:
        return None, error.problems


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None where they are more than are read."""
    with path.open("rb") as stream:
        content = stream.read(LARGEST_BYTES + 1)
    return content if len(content) <= LARGEST_BYTES else None


def read_model(
    path: Path, file: str, model: type[AnyModel]
) -> tuple[AnyModel | None, Node | None, list[Problem]]:
    """A file's model and tree as far as they can be had, and all that is wrong with them.

    Raises:
        UserError: it cannot be read at all.
    """
    tree, problems = read_file(path, file)
    if tree is None:
        return None, None, problems
    problems += itertools.islice(unknown_keys(tree, shape_of_model(model)), MOST_PROBLEMS)
    content, found = validate_tree(tree, model)
    return content, tree, problems + found


def validate_tree(
    tree: Node, model: type[AnyModel], *, partial: bool = False
) -> tuple[AnyModel | None, list[Problem]]:
    """The model of a tree, or the problems; with `partial`, missing keys are none."""
    try:
        return model.model_validate(plain(tree)), []
    except ValidationError as error:
        if error.error_count() > MAX_ERRORS:
            return None, [tree.problem(f"{error.error_count()} values are wrong or missing")]
        found = error.errors(include_url=False)
    problems: list[Problem] = []
    for one in found:
        if len(problems) == MOST_PROBLEMS:
            break
        location = tuple(part for part in one["loc"] if part != "[key]")
        if one["type"] == "extra_forbidden" or (partial and one["type"] == "missing"):
            continue  # unknown keys are reported by unknown_keys(), with the nearest known one
        if one["type"] == "too_short" and len(one["input"]) >= one["ctx"]["min_length"]:
            continue  # as long as it has to be, but for items that are wrong, which are reported
        if one["type"] == "value_error":
            message = str(one["ctx"]["error"])
        else:
            message = f"expected {expected_at(shape_of_model(model), location)}"
            if one["type"] == "missing":
                message = f"missing; {message}"
            elif one["type"] == "too_short":
                message += ", not an empty one"
            else:
                message += f", got {show(one['input'])}"
        problems.append(tree.locate(location, message))
    return None, problems


def in_order(problems: Iterable[Problem], files: Sequence[str]) -> list[Problem]:
    """Each once, by file in the order of reading, then by line."""
    return sorted(dict.fromkeys(problems), key=lambda p: (files.index(p.file), p.line, p.path))


def as_user_error(file: str, problems: Sequence[Problem], hint: str) -> UserError:
    """All that is wrong with a file as one error, a line each."""
    if len(problems) == 1:
        return UserError(str(problems[0]), hint)
    shown = problems[:MOST_PROBLEMS]
    lines = "\n".join(f"  {problem}" for problem in shown)
    return UserError(f"{file}: {len(problems)} things are wrong\n{lines}", hint)
