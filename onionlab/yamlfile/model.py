"""The base of all models of files, and how their keys are declared."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field


def key(default: object = ..., **details: Any) -> Any:
    """A key of the file; unlike Field() it takes the default as the file would write it."""
    return Field(default, **details)


class Model(BaseModel):
    """Base of all models: strict, immutable, defaults parsed like values."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    derived: ClassVar[frozenset[str]] = frozenset()
    """Attributes that the harness sets and a file cannot."""

    filled_in: ClassVar[dict[str, str]] = {}
    """Attributes that the mapping around fills in where a file leaves them out: with what."""

    word: ClassVar[str | None] = None
    """A word that may stand in place of the mapping."""
