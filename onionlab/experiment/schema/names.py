"""How what an experiment names is spelt, and how many of a thing there may be."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

RELAY_ROLES = ("exitguard", "guard", "exit", "middle")

MAX_COUNT = 1_000_000
COUNT = Field(ge=0, le=MAX_COUNT)
POSITIVE_COUNT = Field(ge=1, le=MAX_COUNT)
IDENTIFIER = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")

ClassName = Annotated[str, Field(pattern=r"^[a-z]+$")]
AnyClassName = Annotated[str, IDENTIFIER]
"""Of any kind of experiment: an imported network has perf-exit, for instance."""
LevelName = Annotated[str, IDENTIFIER]
MetricName = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
OptionName = Annotated[str, Field(pattern=r"^_{0,2}[A-Za-z][A-Za-z0-9_]*$")]
