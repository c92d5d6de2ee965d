"""The registry of engines. To add an engine, write its package and register it here."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from onionlab.engines.base import Engine
from onionlab.engines.examination import Finding, Question
from onionlab.errors import UserError

AUTO = "auto"
PREFERRED, EMBEDDED = "shadow", "uml"

PTRACE_VARIABLE = "ONIONLAB_PTRACE"
"""An environment variable that makes the embedded engine's kernel trace its processes with ptrace
even if this is not necessary. It exists to measure the cost of ptrace: runs take longer, but their
records are the same.
"""

LOG = logging.getLogger(__name__)


class EngineKind(Protocol):
    """The operations of an engine that are available before the engine is opened.

    Each method imports the engine's modules only when it is called, because these modules need
    packages that are missing in the guest of the embedded engine, which also imports this package.
    """

    def open(self, root: Path, shadow: str | None, tgen: str | None) -> Engine:
        """Prepare the engine.

        root: the checkout. shadow, tgen: paths of these programs that the user specified. If a path
        is None, the environment variable SHADOW or TGEN, or otherwise the PATH, determines it.
        Raises UserError if a program is missing or unsuitable, or if a build fails.
        """

    def examine(self, question: Question, *, needed: bool) -> Iterator[Finding]:
        """Check whether the machine can run the engine.

        needed: whether runs will use this engine. If they will not, problems are only warnings.
        """

    def cpus_per_run(self, options: Mapping[str, Any]) -> int:
        """Return the number of CPUs to reserve for one run. options: the engine's options."""


class _Shadow:
    def open(self, root: Path, shadow: str | None, tgen: str | None) -> Engine:
        from onionlab.engines.shadow.engine import ShadowEngine

        return ShadowEngine(shadow=shadow, tgen=tgen)

    def examine(self, question: Question, *, needed: bool) -> Iterator[Finding]:
        from onionlab.engines.shadow.examine import examine

        return examine(question, needed=needed)

    def cpus_per_run(self, options: Mapping[str, Any]) -> int:
        from onionlab.engines.shadow.engine import cpus_per_run

        return cpus_per_run(options)


class _Uml:
    def open(self, root: Path, shadow: str | None, tgen: str | None) -> Engine:
        from onionlab.engines.uml.engine import UmlEngine
        from onionlab.engines.uml.kernel import ensure_kernel

        kernel = ensure_kernel(root)
        if os.environ.get(PTRACE_VARIABLE):
            kernel = replace(kernel, ptrace_because=f"{PTRACE_VARIABLE} is set")
        return UmlEngine(kernel)

    def examine(self, question: Question, *, needed: bool) -> Iterator[Finding]:
        from onionlab.engines.uml.examine import examine

        return examine(question, needed=needed)

    def cpus_per_run(self, options: Mapping[str, Any]) -> int:
        return 1  # The guest has a single processor, which all simulated processes share.


ENGINES: dict[str, EngineKind] = {"shadow": _Shadow(), "uml": _Uml()}


def open_engine(
    name: str, *, root: Path, shadow: str | None = None, tgen: str | None = None
) -> Engine:
    """Open an engine by name. For "auto", select Shadow or the embedded engine and log the choice.

    root, shadow, tgen: see `EngineKind.open`. Raises UserError as it does, and for an unknown name.
    """
    if name == AUTO:
        name, reason = _select_engine(root, shadow, tgen)
        if reason:
            LOG.info("engine: %s, %s", name, reason)
    return _kind(name).open(root, shadow, tgen)


def resolve_engine_name(
    name: str, *, root: Path, shadow: str | None = None, tgen: str | None = None
) -> str:
    """Return the name of the engine that `open_engine` would open. The engine is not built.

    Raises UserError if no engine has that name.
    """
    if name == AUTO:
        return _select_engine(root, shadow, tgen)[0]
    _kind(name)
    return name


def _select_engine(root: Path, shadow: str | None, tgen: str | None) -> tuple[str, str]:
    """Return the name of the engine for "auto", and the reason for the choice.

    If the user specified Shadow's or TGen's path, Shadow is selected even if it cannot be opened.
    In this case, the reason is empty, and the caller raises the same error when it opens Shadow.
    """
    try:
        _kind(PREFERRED).open(root, shadow, tgen)
    except UserError as missing:
        if any((shadow, tgen, os.environ.get("SHADOW"), os.environ.get("TGEN"))):
            return PREFERRED, ""
        return EMBEDDED, f"because Shadow is not available ({missing.message})"
    return PREFERRED, "which is installed (ENGINE=uml selects the embedded engine)"


def _kind(name: str) -> EngineKind:
    if name not in ENGINES:
        raise UserError(f"unknown engine {name!r}", f"the engines are: {', '.join(ENGINES)}")
    return ENGINES[name]
