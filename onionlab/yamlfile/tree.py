"""YAML as a tree of nodes that store their places in the file.

Files can use only a strict subset of YAML: one document, without duplicate keys, aliases, tags or
merge keys (files use ``extends`` instead). Scalars are read by the YAML 1.2 core schema, so "no"
and "12:30" are strings.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

import yaml

Scalar = str | int | float | bool | None
Location = tuple[str | int, ...]
"""Keys and positions in lists, from the top of a tree."""

MAX_DEPTH = 50
MAX_NODES = 2**20
"""Maximum number of YAML nodes in a file. The file of a tornettools network has 22 nodes for each
host, so the network can have 47,000 hosts. The public Tor has 8,000 relays."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's loader that uses libyaml, or its much slower loader in Python if libyaml is missing.

The loader is used only to parse a file into events. PyYAML's own composer would end the process
with SIGSEGV on a deeply nested file, so ``_Composer`` builds the tree.
"""


@dataclass(frozen=True)
class Problem:
    """An error in a file. path: dotted keys such as "a.b[1]"; "" for the file itself."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}: {where}{self.message}"


class YamlError(Exception):
    """A file that is not in the supported part of YAML. `problems` has at least one reason."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Node:
    """A mapping, a list or a scalar, and the file, line and path where it was written.

    The line of a value in a mapping is the line of its key. removes: whether this value is a null
    that overrides a value of an extended file (see `merge`).
    """

    value: dict[str, Node] | list[Node] | Scalar
    file: str
    line: int
    path: str
    removes: bool = False

    def children(self) -> Iterator[tuple[str | int, Node]]:
        """Yield keys and values of a mapping, or positions and items of a list."""
        if isinstance(self.value, dict):
            yield from self.value.items()
        elif isinstance(self.value, list):
            yield from enumerate(self.value)

    def get(self, key: str) -> Node | None:
        """Return the value of a key, or None if it is missing or this is not a mapping."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def without(self, *keys: str) -> Node:
        """Return this mapping without the given keys. A list or a scalar is returned unchanged."""
        if not isinstance(self.value, dict):
            return self
        return replace(self, value={k: v for k, v in self.value.items() if k not in keys})

    def problem(self, message: str) -> Problem:
        """Return a Problem for this value."""
        return Problem(self.file, self.line, self.path, message)

    def locate(self, location: Location, message: str) -> Problem:
        """Return a Problem for the value at a location below this node.

        If there is no value at the location, use the line of the nearest existing parent.
        """
        node = self
        for depth, part in enumerate(location):
            child = dict(node.children()).get(part)
            if child is None:
                path = functools.reduce(join_path, location[depth:], node.path)
                return Problem(node.file, node.line, path, message)
            node = child
        return node.problem(message)


def join_path(path: str, part: str | int) -> str:
    """Return ``a.b.c`` for ``a.b`` and ``c``, and ``a.b[1]`` for ``a.b`` and the position 0."""
    if isinstance(part, int):
        return f"{path}[{part + 1}]"
    # A broken file can have any string as a key, but messages must be short and have one line.
    clean = part if part.isprintable() else part.encode("unicode_escape").decode("ascii")
    clean = clean if len(clean) <= 60 else clean[:57] + "..."
    return f"{path}.{clean}" if path else clean


def plain(node: Node) -> object:
    """Return the values without their locations."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def merge(base: Node, over: Node, *, replaced: Container[str] = (), key: str = "") -> Node:
    """Return `base` overridden by `over`. Mappings are merged by key; other values are replaced.

    Every value keeps its location. The keys of `base` come first, then new keys of `over`. If a
    null replaces a value, it is marked, so that `without_removed` can remove its key.

    replaced: keys whose mappings are replaced as a whole. key: the key whose values are `base` and
    `over`; "" for whole files.
    """
    if over.value is None:
        return replace(over, removes=True)
    if not isinstance(base.value, dict) or not isinstance(over.value, dict) or key in replaced:
        return over
    merged = dict(base.value)
    for name, child in over.value.items():
        merged[name] = (
            merge(merged[name], child, replaced=replaced, key=name) if name in merged else child
        )
    return replace(over, value=merged)


def without_removed(node: Node) -> Node:
    """Return a tree without the keys whose values were overridden by null (see `merge`)."""
    if not isinstance(node.value, dict):
        return node
    kept = {key: without_removed(child) for key, child in node.value.items() if not child.removes}
    return replace(node, value=kept)


# The same few files are read for each of the many runs of an experiment, so their trees are cached.
# Trees are immutable, so callers can share them.
@functools.lru_cache(maxsize=64)
def read_tree(text: str, file: str) -> Node:
    """Return the tree of a file's text. `file`: the file's name in messages.

    Raises:
        YamlError: the YAML is broken, has a duplicate key, or uses a feature that is not allowed.
    """
    composer = _Composer(yaml.parse(text, Loader=_LOADER), file)
    try:
        tree = composer.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f" ({error.context}" if error.context else ""
        if context and error.context_mark:
            context += f" that begins on line {error.context_mark.line + 1}"
        message = f"broken YAML: {error.problem}{context and context + ')'}"
        # If the last line of a file has no line break, libyaml gives an error at the end of the
        # file the number of the next line, which does not exist.
        line = min(mark.line, text.count("\n")) + 1 if mark else 1
        raise YamlError([Problem(file, line, "", message)]) from None
    except yaml.reader.ReaderError as error:
        # The position in libyaml's error counts bytes of UTF-8.
        line = text.encode()[: error.position].count(b"\n") + 1
        message = f"broken YAML: a character that YAML does not allow (U+{error.character:04X})"
        raise YamlError([Problem(file, line, "", message)]) from None
    if not isinstance(tree.value, dict):
        composer.problems.append(
            tree.problem("expected a mapping (key: value) at the top of the file")
        )
    if composer.problems:
        raise YamlError(composer.problems)
    return tree


_INT = re.compile(r"[-+]?[0-9]{1,18}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _scalar(event: yaml.ScalarEvent) -> Scalar:
    text = str(event.value)
    if event.style:  # Quoted scalars and blocks are always strings.
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


_PLAIN_TAGS = {None, "!", *(f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq", "null"))}


@dataclass
class _Composer:
    """Builds the tree of a document from the events of PyYAML's parser."""

    events: Iterator[yaml.Event]
    file: str
    problems: list[Problem] = field(default_factory=list)
    _nodes: int = 0

    def document(self) -> Node:
        """Return the tree of the only document.

        Raises yaml.YAMLError if the YAML is broken, and YamlError for problems at which reading
        stops, such as aliases. Other problems are added to `problems`.
        """
        next(self.events)  # start of the stream
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise YamlError([Problem(self.file, 1, "", "the file is empty")])
        first = next(self.events)
        tree = self._node(first, _line(first), "", 0)
        next(self.events)  # end of the document
        another = next(self.events)
        if not isinstance(another, yaml.StreamEndEvent):
            raise self._refused(another, "but found another document")
        return tree

    def _refused(self, event: yaml.Event, message: str) -> YamlError:
        return YamlError([Problem(self.file, _line(event), "", f"broken YAML: {message}")])

    def _node(self, event: yaml.Event, line: int, path: str, depth: int) -> Node:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._refused(event, f"more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise self._refused(event, "nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            message = "aliases (*name) are not allowed; use `extends` for shared values"
            raise self._refused(event, message)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.tag not in _PLAIN_TAGS:
            self._add(line, path, f"tags ({event.tag}) are not allowed")
        if isinstance(event, yaml.ScalarEvent):
            return Node(_scalar(event), self.file, line, path)
        if isinstance(event, yaml.MappingStartEvent):
            return Node(self._entries(path, depth), self.file, line, path)
        items: list[Node] = []
        while not isinstance(item := next(self.events), yaml.SequenceEndEvent):
            items.append(self._node(item, _line(item), join_path(path, len(items)), depth + 1))
        return Node(items, self.file, line, path)

    def _entries(self, path: str, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            line = _line(event)
            key = str(event.value) if isinstance(event, yaml.ScalarEvent) else None
            if key is None:
                self._node(event, line, path, depth + 1)
                self._add(line, path, "a key must be plain text")
            below = path if key is None else join_path(path, key)
            value = self._node(next(self.events), line, below, depth + 1)
            if key == "<<":
                message = "merge keys (<<) are not allowed; use `extends` for shared values"
                self._add(line, path, message)
            elif key in entries:
                message = f"duplicate key, first on line {entries[key].line}"
                self._add(line, below, message)
            elif key is not None:
                entries[key] = value
        return entries

    def _add(self, line: int, path: str, message: str) -> None:
        self.problems.append(Problem(self.file, line, path, message))


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1
