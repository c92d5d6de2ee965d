"""The registry of engines. To add an engine, write its package and register it here."""

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
    "open_engine",
    "resolve_engine_name",
]

AUTO = "auto"
PREFERRED, EMBEDDED = "shadow", "uml"

PTRACE_VARIABLE = "ONIONLAB_PTRACE"
"""An environment variable that makes the embedded engine's kernel trace its processes with ptrace
even if this is not necessary. It is meant for measurements: records are the same, but runs take
longer.
"""

Say = Callable[[str], None]


class Examine(Protocol):
    """Checks whether the machine can run an engine. needed: whether runs will use this engine."""

    def __call__(self, question: Question, *, needed: bool) -> Iterator[Finding]:
        """Yield all findings."""


@dataclass(frozen=True)
class EngineKind:
    """The operations that are available before an engine is opened.

    open: prepares the engine, given the checkout, a receiver of messages, and the user's paths of
    Shadow and TGen; raises UserError if something is missing. cpus_per_run: see `Engine`.
    """

    open: Callable[[Path, Say, str | None, str | None], Engine]
    examine: Examine
    cpus_per_run: Callable[[Mapping[str, Any]], int]


# The functions below import their modules when they are called. The guest of the embedded engine
# imports this package, too, and has only the standard library.


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
    if os.environ.get(PTRACE_VARIABLE):
        kernel = replace(kernel, ptrace_because=f"{PTRACE_VARIABLE} is set")
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
    """Open an engine by name. "auto" selects the first one that this machine has and reports it.

    root: the checkout, where an engine stores its builds; shadow, tgen: paths of the user's
    installation, by default found on the PATH. Raises UserError if the engine is unknown or
    something that it needs is missing.
    """
    if name != AUTO:
        return _kind(name).open(root, say, shadow, tgen)
    try:
        engine = _kind(PREFERRED).open(root, say, shadow, tgen)
    except UserError as missing:
        if _is_named(shadow, tgen):
            raise
        say(f"engine: uml, because Shadow is not available ({missing.message})")
        return _kind(EMBEDDED).open(root, say, shadow, tgen)
    say("engine: shadow, which is installed (ENGINE=uml selects the embedded engine)")
    return engine


def resolve_engine_name(
    name: str, *, root: Path, shadow: str | None = None, tgen: str | None = None
) -> str:
    """Return the name of the engine that `open_engine` would open, without building it.

    Raises UserError if no engine has that name.
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
        raise UserError(f"unknown engine {name!r}", f"the engines are: {', '.join(ENGINES)}")
    return ENGINES[name]


def _is_named(shadow: str | None, tgen: str | None) -> bool:
    """Return whether the user specified Shadow or TGen: wrong paths must not select "uml"."""
    return any((shadow, tgen, os.environ.get("SHADOW"), os.environ.get("TGEN")))
