"""The engines. To add one, write its module and name it here; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

from onionlab.engines.base import Engine, EngineFailureError, Process, Progress, Simulation, Usage
from onionlab.engines.shadow import ShadowEngine
from onionlab.errors import UserError

__all__ = [
    "ENGINES",
    "Engine",
    "EngineFailureError",
    "Process",
    "Progress",
    "Simulation",
    "Usage",
    "open_engine",
]

ENGINES: dict[str, Callable[..., Engine]] = {"shadow": ShadowEngine}


def open_engine(name: str, *, shadow: str | None = None, tgen: str | None = None) -> Engine:
    """Return the engine of that name ("auto": the first that this machine has).

    shadow, tgen: paths of the user's installation, else found on the PATH. Raises UserError where
    the engine is unknown or what it needs is missing.
    """
    if name == "auto":
        name = next(iter(ENGINES))
    if name not in ENGINES:
        raise UserError(f"there is no engine {name!r}", f"the engines are: {', '.join(ENGINES)}")
    return ENGINES[name](shadow=shadow, tgen=tgen)
