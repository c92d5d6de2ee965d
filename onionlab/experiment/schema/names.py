"""How what an experiment names is spelt, and how many of a thing there may be."""

from __future__ import annotations

from typing import Annotated

from onionlab.yamlfile import kinds

RELAY_ROLES = ("exitguard", "guard", "exit", "middle")

MAX_COUNT = 1_000_000
COUNT = kinds.whole_number(0, MAX_COUNT)
POSITIVE_COUNT = kinds.whole_number(1, MAX_COUNT)
IDENTIFIER = kinds.name(r"[a-z0-9][a-z0-9-]*", "lower-case letters, digits and hyphens")

ClassName = Annotated[str, kinds.name(r"[a-z]+", "lower-case letters")]
AnyClassName = Annotated[str, IDENTIFIER]
"""Of any kind of experiment: an imported network has perf-exit, for instance."""
LevelName = Annotated[str, IDENTIFIER]
MetricName = Annotated[str, kinds.name(r"[a-z0-9_]+", "a metric of docs/reference/metrics.md")]
ParameterName = Annotated[str, kinds.name(r"[A-Za-z][A-Za-z0-9_-]*", "a consensus parameter")]
OptionName = Annotated[str, kinds.name(r"_{0,2}[A-Za-z][A-Za-z0-9_]*", "an option of Tor")]
