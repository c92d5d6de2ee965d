"""JSON Schemas of experiment files, and tables of the keys of files, both from the models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from onionlab.experiment.load import FILE_KINDS
from onionlab.yamlfile.model import json_schema

SCHEMAS: dict[str, tuple[str, type[BaseModel]]] = {
    kind or "tor": (f"{kind}.schema.json" if kind else "schema.json", models.file)
    for kind, models in FILE_KINDS.items()
}
"""Kind of experiment -> name of its JSON Schema in `experiments/`, and the model of its files."""


def editor_schema(model: type[BaseModel]) -> str:
    """Return the JSON Schema with which editors check experiment files.

    No key is required, because the files that an experiment file extends may supply any key.
    """
    schema = json_schema(model, partial=True)
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}) + "\n"


def key_table(model: Any) -> str:
    """Return the table of all keys of a file, as Markdown."""
    schema = json_schema(model)
    head = (("Key", "Value", "Default", "Meaning"), ("---",) * 4)
    rows = (*head, *_rows(schema, schema.get("$defs", {}), "", {}))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows(
    schema: dict[str, Any], models: dict[str, Any], prefix: str, seen: dict[str, str]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each key of a mapping and of nested mappings.

    models: name of a model -> its JSON Schema. prefix: the path of the mapping. seen: name of a
    model -> the path at which its keys are listed. The function adds entries.
    """
    # Leave out versions of formats, which are not written to files, and options of Shadow, which
    # have no description.
    keys = {
        name: (key, list(_models_below(key, prefix + name)))
        for name, key in schema.get("properties", {}).items()
        if "description" in key and "not written" not in key["description"]
    }
    # List the keys of a model only once. If both this mapping and a nested mapping contain the
    # model, list the keys here, at the key of this mapping.
    for _, below in keys.values():
        for path, model in below:
            seen.setdefault(model, path)
    for name, (key, below) in keys.items():
        new = [(path, model) for path, model in below if seen[model] == path]
        value = _value(key)
        default = "required" if name in schema.get("required", ()) else _default(key)
        if below and not new:
            # Refer to the path where the keys are listed. Leave the default out: it can be
            # "required", which is wrong below `overrides`, where all keys are optional.
            value, default = f"{value}, as `{seen[below[0][1]]}`", ""
        yield f"`{prefix}{name}`", value, default, describe(key["description"])
        for path, model in new:
            for choice in models[model].get("anyOf", [models[model]]):
                yield from _rows(choice, models, f"{path}.", seen)


def _models_below(key: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each model in the schema of a value.

    Models of list items and of nested values are included. key: the schema; path: the value's path.
    """
    if "$ref" in key:
        yield path, key["$ref"].rpartition("/")[2]
    for choice in key.get("anyOf", ()):
        yield from _models_below(choice, path)
    if isinstance(key.get("items"), dict):
        yield from _models_below(key["items"], f"{path}[]")
    for values in _mapped_values(key):
        yield from _models_below(values, f"{path}.NAME")


def _mapped_values(key: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a list with the schema of a mapping's values; empty if the mapping has fixed keys."""
    values = [*key.get("patternProperties", {}).values(), key.get("additionalProperties")]
    return [one for one in values if isinstance(one, dict)][:1]


def _value(key: dict[str, Any]) -> str:
    """Return the type of a value as a string for readers."""
    if "anyOf" in key:
        kinds = dict.fromkeys(map(_value, key["anyOf"]))
        if "number" in kinds:
            kinds.pop("whole number", None)
        return ", or ".join(kinds)
    if "const" in key:
        return json.dumps(key["const"])
    if "enum" in key:
        return ", ".join(f"`{word}`" for word in key["enum"])
    if "$ref" in key or key.get("type") == "object":
        values = _mapped_values(key)
        return f"mapping of names to {_value(values[0])}" if values else "mapping"
    if key.get("type") == "array":
        return f"list of {_value(key.get('items', {}))}"
    names = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    kind = str(key.get("type", "any value"))
    return str(key.get("title", names.get(kind, kind)))


def _default(key: dict[str, Any]) -> str:
    default = key.get("default")
    if default in (None, "", [], {}):
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def describe(text: str) -> str:
    """Return a description with a capital letter and with links to the pages that it names."""
    linked = re.sub(r"docs/([a-z/-]+/([a-z-]+)\.md)", r"[\2](../\1)", text.replace("<", "&lt;"))
    # Names of columns and keys, and TGen's own names, keep their case.
    return linked if "_" in linked.split(" ")[0] else linked[:1].upper() + linked[1:]
