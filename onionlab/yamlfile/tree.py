"""YAML as a tree of nodes that remember where they were written.

The files here use a small, strict part of YAML: one document, no key twice, no anchors, aliases,
tags or merge keys (``extends`` is what they are for), and the scalars of the YAML 1.2 core schema,
so that "no" and "12:30" are text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

import yaml

Scalar = str | int | float | bool | None

MAX_DEPTH = 50
MOST_COMPOSED = 4 * MAX_DEPTH
"""Beyond it nothing is looked at: PyYAML calls itself for each level."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a file.

    path: dotted keys as they stand in the file, "" for the file itself.
    """

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}: {where}{self.message}"


class YamlError(Exception):
    """A file that is not YAML as used here; `problems` says why, at least one."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True)
class Node:
    """A mapping, a list or a scalar, and the file, line and path where it was written.

    The line of a value in a mapping is that of its key.
    """

    value: dict[str, Node] | list[Node] | Scalar
    file: str
    line: int
    path: str

    def children(self) -> Iterator[tuple[str | int, Node]]:
        """Keys and values of a mapping, positions and items of a list, nothing for a scalar."""
        if isinstance(self.value, dict):
            yield from self.value.items()
        elif isinstance(self.value, list):
            yield from enumerate(self.value)

    def get(self, key: str) -> Node | None:
        """The value of a key, if this is a mapping that has it."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def without(self, *keys: str) -> Node:
        """This mapping without some of its keys."""
        if not isinstance(self.value, dict):
            return self
        return replace(self, value={k: v for k, v in self.value.items() if k not in keys})

    def problem(self, message: str, *below: str | int) -> Problem:
        """A problem with this value, or with what should stand below it."""
        path = self.path
        for part in below:
            path = join_path(path, part)
        return Problem(self.file, self.line, path, message)

    def locate(self, location: tuple[str | int, ...], message: str) -> Problem:
        """A problem at a location below; at its nearest existing parent's line if it is missing."""
        node = self
        for depth, part in enumerate(location):
            child = dict(node.children()).get(part)
            if child is None:
                return node.problem(message, *location[depth:])
            node = child
        return node.problem(message)


def join_path(path: str, part: str | int) -> str:
    """``a.b`` and ``c`` make ``a.b.c``; positions in lists stand in brackets, counted from 1."""
    if isinstance(part, int):
        return f"{path}[{part + 1}]"
    # Keys are short words; whatever else a broken file has there must not spoil the message.
    clean = part if part.isprintable() else part.encode("unicode_escape").decode("ascii")
    clean = clean if len(clean) <= 60 else clean[:57] + "..."
    return f"{path}.{clean}" if path else clean


def plain(node: Node) -> object:
    """The values alone."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def merge(base: Node, over: Node, *, whole: Container[str] = (), key: str = "") -> Node:
    """`over` on top of `base`: mappings key by key, everything else replaced, lists too.

    whole: keys whose mappings are replaced too; key: of the two themselves.
    Every value keeps the place it was written at. The order of keys is the base's, new ones last.
    """
    both = isinstance(base.value, dict) and isinstance(over.value, dict)
    if not both or key in whole:
        return over
    assert isinstance(base.value, dict)
    assert isinstance(over.value, dict)
    merged = dict(base.value)
    for name, child in over.value.items():
        merged[name] = (
            merge(merged[name], child, whole=whole, key=name) if name in merged else child
        )
    return replace(over, value=merged)


# A plan of many runs asks for the same few files for each of them. Nothing changes a tree.
@functools.lru_cache(maxsize=64)
def read_tree(text: str, file: str) -> Node:
    """Parse one file's text; `file` is the name that problems show.

    Raises:
        YamlError: broken YAML, a key twice, or YAML that is not used here.
    """
    try:
        root = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f" ({error.context}" if error.context else ""
        if context and error.context_mark:
            context += f" that begins on line {error.context_mark.line + 1}"
        message = f"broken YAML: {error.problem}{context and context + ')'}"
        raise YamlError([Problem(file, mark.line + 1 if mark else 1, "", message)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        # PyYAML gives the code of the character, though its annotations promise the character.
        character = str(error.character)
        code = int(character) if character.isdecimal() else ord(character)
        message = f"broken YAML: a character that YAML does not allow (U+{code:04X})"
        raise YamlError([Problem(file, line, "", message)]) from None
    except RecursionError:
        raise YamlError([Problem(file, 1, "", "broken YAML: nested too deeply")]) from None
    if root is None:
        raise YamlError([Problem(file, 1, "", "the file is empty")])
    problems: list[Problem] = []
    tree = _convert(root, file, root.start_mark.line + 1, "", problems, 0)
    if not isinstance(tree.value, dict):
        problems.append(tree.problem("expected a mapping (key: value) at the top of the file"))
    if problems:
        raise YamlError(problems)
    return tree


class _CoreLoader(yaml.SafeLoader):
    """The composer of PyYAML with the scalars of YAML 1.2's core schema and without aliases."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - filled below

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            message = "aliases (*name) are not used here; extend a file that holds what is shared"
            mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, message, mark)
        self._depth += 1
        try:
            if self._depth > MOST_COMPOSED:
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.composer.ComposerError(None, None, "nested too deeply", mark)
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


_INT = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _scalar(node: yaml.ScalarNode) -> Scalar:
    text = str(node.value)
    if node.style is not None:  # quoted or a block: always text
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq", "null")}


def _convert(
    node: yaml.Node, file: str, line: int, path: str, problems: list[Problem], depth: int
) -> Node:
    def child_of(value: yaml.Node, line: int, part: str | int) -> Node:
        return _convert(value, file, line, join_path(path, part), problems, depth + 1)

    if depth > MAX_DEPTH:
        problems.append(Problem(file, line, path[:80], "nested too deeply"))
        return Node(None, file, line, path)
    if node.tag not in _PLAIN_TAGS:
        problems.append(Problem(file, line, path, f"tags ({node.tag}) are not used here"))
    if isinstance(node, yaml.SequenceNode):
        items = [child_of(v, v.start_mark.line + 1, i) for i, v in enumerate(node.value)]
        return Node(items, file, line, path)
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, Node] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                problems.append(Problem(file, key_line, path, "a key must be plain text"))
                continue
            key = str(key_node.value)
            if key == "<<":
                message = (
                    "merge keys (<<) are not used here; extend a file that holds what is shared"
                )
                problems.append(Problem(file, key_line, path, message))
            elif key in entries:
                message = f"the key stands twice, first on line {entries[key].line}"
                problems.append(Problem(file, key_line, join_path(path, key), message))
            else:
                entries[key] = child_of(value_node, key_line, key)
        return Node(entries, file, line, path)
    assert isinstance(node, yaml.ScalarNode)
    return Node(_scalar(node), file, line, path)
