"""The engines. To add one, write its package and name it here; nothing else changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from onionlab.engines.base import Engine, EngineFailureError, Process, Progress, Simulation, Usage
from onionlab.engines.examination import Finding, Question
from onionlab.errors import UserError

__all__ = [
    "AUTO",
    "ENGINES",
    "Engine",
    "EngineFailureError",
    "EngineKind",
    "Process",
    "Progress",
    "Simulation",
    "Usage",
    "engine_that_would_run",
    "open_engine",
]

AUTO = "auto"
PREFERRED, EMBEDDED = "shadow", "uml"

BY_PTRACE = "ONIONLAB_PTRACE"
"""Variable of the environment by which the embedded engine's kernel follows its processes by ptrace
though it need not: for measurements, since records are the same and it takes longer."""

Say = Callable[[str], None]


class Examine(Protocol):
    """Says what the machine has and lacks for an engine; needed: whether it is to run here."""

    def __call__(self, question: Question, *, needed: bool) -> Iterator[Finding]:
        """All findings."""


@dataclass(frozen=True)
class EngineKind:
    """What can be done with an engine before it is there.

    open: makes it ready to run from the checkout, what it has to say, and the user's paths of
    Shadow and TGen; raises UserError where something is missing. cpus_per_run: as the engine's own.
    """

    open: Callable[[Path, Say, str | None, str | None], Engine]
    examine: Examine
    cpus_per_run: Callable[[Mapping[str, Any]], int]


# What follows is imported when it is used: the guest of the embedded engine imports this package
# too, and has nothing but the standard library.


def _open_shadow(root: Path, say: Say, shadow: str | None, tgen: str | None) -> Engine:
    from onionlab.engines.shadow.engine import ShadowEngine

    return ShadowEngine(shadow=shadow, tgen=tgen)


def _examine_shadow(question: Question, *, needed: bool) -> Iterator[Finding]:
    from onionlab.engines.shadow.examine import examine

    return examine(question, needed=needed)


def _cpus_of_shadow(options: Mapping[str, Any]) -> int:
    from onionlab.engines.shadow.engine import cpus_per_run

    return cpus_per_run(options)


def _open_uml(root: Path, say: Say, shadow: str | None, tgen: str | None) -> Engine:
    from onionlab.engines.uml.engine import UmlEngine
    from onionlab.engines.uml.kernel import ensure_kernel

    kernel = ensure_kernel(root, say=say)
    if os.environ.get(BY_PTRACE):
        kernel = replace(kernel, ptrace_because=f"{BY_PTRACE} is set")
    return UmlEngine(kernel)


def _examine_uml(question: Question, *, needed: bool) -> Iterator[Finding]:
    from onionlab.engines.uml.examine import examine

    return examine(question, needed=needed)


def _cpus_of_uml(options: Mapping[str, Any]) -> int:
    return 1  # A guest has a single processor.


ENGINES = {
    "shadow": EngineKind(_open_shadow, _examine_shadow, _cpus_of_shadow),
    "uml": EngineKind(_open_uml, _examine_uml, _cpus_of_uml),
}


def open_engine(
    name: str,
    *,
    root: Path,
    say: Say,
    shadow: str | None = None,
    tgen: str | None = None,
) -> Engine:
    """Return the engine of that name ("auto": the first that this machine has, and say which).

    root: the checkout, where an engine keeps what it builds; shadow, tgen: paths of the user's
    installation, else found on the PATH. Raises UserError where the engine is unknown or what it
    needs is missing.
    """
    if name != AUTO:
        return _kind(name).open(root, say, shadow, tgen)
    try:
        engine = _kind(PREFERRED).open(root, say, shadow, tgen)
    except UserError as missing:
        if _is_named(shadow, tgen):
            raise
        say(f"engine: uml, because there is no Shadow here ({missing.message})")
        return _kind(EMBEDDED).open(root, say, shadow, tgen)
    say("engine: shadow, which this machine has (ENGINE=uml for the embedded one)")
    return engine


def engine_that_would_run(
    name: str, *, root: Path, shadow: str | None = None, tgen: str | None = None
) -> str:
    """Return the name of the engine that `open_engine` would open, which it does not build.

    Raises UserError where there is no engine of that name.
    """
    if name != AUTO:
        _kind(name)
        return name
    if _is_named(shadow, tgen):
        return PREFERRED
    try:
        _kind(PREFERRED).open(root, lambda _: None, shadow, tgen)
    except UserError:
        return EMBEDDED
    return PREFERRED


def _kind(name: str) -> EngineKind:
    if name not in ENGINES:
        raise UserError(f"there is no engine {name!r}", f"the engines are: {', '.join(ENGINES)}")
    return ENGINES[name]


def _is_named(shadow: str | None, tgen: str | None) -> bool:
    """Who names Shadow or TGen wants them: a wrong path is not to end in another engine."""
    return any((shadow, tgen, os.environ.get("SHADOW"), os.environ.get("TGEN")))
