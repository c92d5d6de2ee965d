"""The JSON Schema and the reference of keys, both made from the models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from onionlab.experiment.peers import PeersFile, PeersSettings
from onionlab.experiment.schema import ExperimentFile, Settings
from onionlab.experiment.tornettools import TornetFile, TornetSettings
from onionlab.yamlfile.model import Model
from onionlab.yamlfile.shape import Key, Shape, keys_of

GENERATED_BEGIN = "<!-- made by `onionlab schema --write` from the models: do not edit -->"
GENERATED_END = "<!-- end of the generated part -->"

SECTION_OF_KEY = {
    "network": "Network",
    "traffic": "Traffic",
    "tor": "Tor",
    "time": "Time",
    "engine": "Engine",
}
"""The keys whose keys get a table of their own."""


PEERS_SECTION_OF_KEY = {
    "network": "Network",
    "transfer": "Transfer",
    "libtorrent": "libtorrent",
    "time": "Time",
    "engine": "Engine",
}
"""The same of an experiment of kind `peers`."""

TORNET_SECTION_OF_KEY = {
    "network": "Network",
    "traffic": "Traffic",
    "tor": "Tor",
    "time": "Time",
    "engine": "Engine",
}
"""The same of an experiment of kind `tornettools`."""


def json_schema(file: type[Model] = ExperimentFile) -> str:
    """The JSON Schema of an experiment file, as text ready to be written.

    No key is required: what a file extends may hold it.
    """
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "onionlab experiment",
        "description": "One file of experiments/. "
        "docs/reference/experiments.md explains every key.",
        **_schema_of_model(file),
    }
    return json.dumps(schema, indent=1) + "\n"


def peers_json_schema() -> str:
    """The JSON Schema of an experiment file of kind `peers`."""
    return json_schema(PeersFile)


def tornet_json_schema() -> str:
    """The JSON Schema of an experiment file of kind `tornettools`."""
    return json_schema(TornetFile)


def tornet_reference() -> str:
    """The reference of the keys of an experiment of kind `tornettools`."""
    return reference(TornetFile, TORNET_SECTION_OF_KEY)


def peers_reference() -> str:
    """The reference of the keys of an experiment of kind `peers`."""
    return reference(PeersFile, PEERS_SECTION_OF_KEY)


def reference(
    file: type[Model] = ExperimentFile, sections: Mapping[str, str] = SECTION_OF_KEY
) -> str:
    """The reference of all keys in Markdown, one table for each section."""
    keys = keys_of(file)
    top = [key for name, key in keys.items() if name not in (*sections, "extends")]
    top.insert(0, keys["extends"])  # what a reader of a file meets first
    parts = ["### The file\n", _table(row for key in top for row in _rows(key, ""))]
    for name, title in sections.items():
        parts += [f"### {title} (`{name}`)\n", f"{_sentence(keys[name].description)}.\n"]
        parts.append(_table(row for row in _rows(keys[name], "") if row[0] != name))
    return "\n".join(parts)


def with_reference(page: str, made: Callable[[], str] = reference) -> str:
    """A page of Markdown with the part between the two marks made anew.

    Raises:
        ValueError: a mark is missing.
    """
    before, begin, rest = page.partition(GENERATED_BEGIN)
    _, end, after = rest.partition(GENERATED_END)
    if not begin or not end:
        raise ValueError(f"the page lacks a mark: {GENERATED_BEGIN} or {GENERATED_END}")
    return f"{before}{begin}\n\n{made()}\n{end}{after}"


def _table(rows: Iterable[tuple[str, Key]]) -> str:
    lines = ["| Key | Value | Default | Meaning |", "| --- | --- | --- | --- |"]
    for path, key in rows:
        columns = (f"`{path}`", _value(key.shape), _default(key), _sentence(key.description))
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def _rows(key: Key, prefix: str) -> Iterator[tuple[str, Key]]:
    """A key and all below it, each with its path; NAME is a free name, [] a list's item."""
    path = f"{prefix}.{key.name}" if prefix else key.name
    yield path, key
    shape = key.shape
    while shape.item is not None:
        path += ".NAME" if shape.free_key is not None else "[]"
        shape = shape.item
    # What a level may override is the rest of this reference.
    if shape.model is not None and shape.model not in (Settings, PeersSettings, TornetSettings):
        yield from _rows_below(list(keys_of(shape.model).values()), path)


def _rows_below(keys: Sequence[Key], path: str) -> Iterator[tuple[str, Key]]:
    """The keys of one mapping; what several of them hold alike is told once, behind the last."""
    for place, key in enumerate(keys):
        alike = [other.name for other in keys if other.shape.model and other.shape == key.shape]
        if len(alike) < 2:
            yield from _rows(key, path)
            continue
        yield f"{path}.{key.name}", key
        assert key.shape.model is not None
        if not any(other.name in alike for other in keys[place + 1 :]):
            together = f"{path}.{{{','.join(alike)}}}"
            yield from _rows_below(list(keys_of(key.shape.model).values()), together)


def _value(shape: Shape) -> str:
    if shape.nullable:
        return f"{_value(replace(shape, nullable=False))}, or null"
    if shape.kind is not None:
        return shape.kind.noun
    if shape.model is not None:
        return f"{shape.model.word}, or mapping" if shape.model.word is not None else "mapping"
    assert shape.item is not None
    if shape.free_key is not None:
        return f"mapping of names to: {_value(shape.item)}"
    return f"list of: {_value(shape.item)}"


def _default(key: Key) -> str:
    if key.required:
        return "required"
    if key.default in (None, (), {}) or isinstance(key.default, dict):
        return ""
    if isinstance(key.default, str) and key.default.startswith("("):
        return key.default.strip("()")
    return f"`{key.default if isinstance(key.default, str) else json.dumps(key.default)}`"


def _sentence(text: str) -> str:
    """A description, its first letter large, with pages of docs/ as links from docs/reference/."""
    linked = re.sub(r"docs/([a-z/-]+/([a-z-]+)\.md)", r"[\2](../\1)", text)
    return linked[:1].upper() + linked[1:]


def _schema_of_model(model: type[Model]) -> dict[str, object]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {"description": key.description, **_schema_of_shape(key.shape)}
            for name, key in keys_of(model).items()
        },
    }


def _schema_of_shape(shape: Shape) -> dict[str, object]:
    alternatives: list[dict[str, object]] = [_schema_of_value(shape)]
    if shape.model is not None and shape.model.word is not None:
        alternatives.append({"const": shape.model.word})
    if shape.nullable:
        alternatives.append({"type": "null"})
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}


def _schema_of_value(shape: Shape) -> dict[str, object]:
    if shape.kind is not None:
        return dict(shape.kind.schema)
    if shape.model is not None:
        return _schema_of_model(shape.model)
    assert shape.item is not None
    below = _schema_of_shape(shape.item)
    if shape.free_key is not None:
        names = {"pattern": shape.free_key.schema["pattern"]}
        return {"type": "object", "propertyNames": names, "additionalProperties": below}
    return {"type": "array", "items": below}
