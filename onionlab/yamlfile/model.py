"""The base of all models of files, and their JSON Schema."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


def key(default: object = ..., **details: Any) -> Any:
    """Declare a key of a file: Field() whose default is written as in the file."""
    return Field(default, **details)


class Model(BaseModel):
    """Base of all models: strict, immutable, defaults parsed like values."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


def json_schema(model: Any, *, partial: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a model or a dataclass. With `partial`, no key is required."""
    generator = _PartialSchema if partial else _StrictSchema
    return TypeAdapter(model).json_schema(schema_generator=generator)


class _StrictSchema(GenerateJsonSchema):
    """JSON Schema without pydantic's titles, which only repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Refuse the names that do not match the pattern."""
        result = super().dict_schema(schema)
        return result | ({"additionalProperties": False} if "patternProperties" in result else {})


class _PartialSchema(_StrictSchema):
    def field_is_required(self, field: Any, total: bool) -> bool:
        return False
