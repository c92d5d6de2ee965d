"""The engines. To add one, write its module and name it here; nothing else changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from onionlab.engines.base import Engine, EngineFailureError, Process, Progress, Simulation, Usage
from onionlab.errors import UserError

__all__ = [
    "AUTO",
    "ENGINES",
    "Engine",
    "EngineFailureError",
    "Process",
    "Progress",
    "Simulation",
    "Usage",
    "open_engine",
]

AUTO = "auto"


def _open_shadow(
    root: Path, say: Callable[[str], None], shadow: str | None, tgen: str | None
) -> Engine:
    from onionlab.engines.shadow import ShadowEngine

    return ShadowEngine(shadow=shadow, tgen=tgen)


def _open_uml(
    root: Path, say: Callable[[str], None], shadow: str | None, tgen: str | None
) -> Engine:
    from onionlab.engines.uml.engine import UmlEngine
    from onionlab.engines.uml.kernel import ensure_kernel

    return UmlEngine(ensure_kernel(root, say=say))


# Imported when they are opened: the guest of the embedded engine imports this package too, and has
# nothing but the standard library.
ENGINES: dict[str, Callable[[Path, Callable[[str], None], str | None, str | None], Engine]] = {
    "shadow": _open_shadow,
    "uml": _open_uml,
}


def open_engine(
    name: str,
    *,
    root: Path,
    say: Callable[[str], None],
    shadow: str | None = None,
    tgen: str | None = None,
) -> Engine:
    """Return the engine of that name ("auto": the first that this machine has, and say which).

    root: the checkout, where an engine keeps what it builds; shadow, tgen: paths of the user's
    installation, else found on the PATH. Raises UserError where the engine is unknown or what it
    needs is missing.
    """
    if name != AUTO and name not in ENGINES:
        raise UserError(f"there is no engine {name!r}", f"the engines are: {', '.join(ENGINES)}")
    if name != AUTO:
        return ENGINES[name](root, say, shadow, tgen)
    try:
        engine = ENGINES["shadow"](root, say, shadow, tgen)
    except UserError as missing:
        # Who names Shadow or TGen wants them: a wrong path is not to end in another engine.
        if shadow or tgen or os.environ.get("SHADOW") or os.environ.get("TGEN"):
            raise
        say(f"engine: uml, because there is no Shadow here ({missing.message})")
        return ENGINES["uml"](root, say, shadow, tgen)
    say("engine: shadow, which this machine has (ENGINE=uml for the embedded one)")
    return engine
