"""manifest.json: the inputs and costs of a finished run.

A run's name is a hash of its identity, which is everything that determines its results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from analysis.formats import files
from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import parse_json, read_as, write_json

ID_HEX_DIGITS = 16


class Build(FormatModel):
    """One program that was built for the run."""

    version: str = Field(description="of the program")
    sha256: str = Field(description="of the executable")
    source: Any = Field(default=None, description="what it was built from, with which toolchain")


class TorrcSetting(FormatModel):
    """One torrc option, as passed to Tor."""

    value: str = Field(description="its value; values of several lines are separated by commas")
    set_by: str = Field(description="its origin: a file, a variant or a key of the experiment")


class Manifest(FormatModel):
    """manifest.json: the inputs of a finished run, and its costs."""

    format: Literal[1] = Field(default=1, description="version")
    run_id: str = Field(default="", description="the run's name in the store: hash of identity")
    title: str = Field(default="", description="level, variant and seed, for readers")
    seed: int | None = Field(default=None, description="its network's seed")
    repeat: int = Field(default=1, description="number of the run on its network, from 1")
    variant: str = Field(default="", description="name of the variant")
    identity: dict[str, Any] = Field(
        default={},
        description="everything that determines the run's results: format (its version), files "
        "(path -> SHA-256 of each file the run starts from), programs (name -> SHA-256 of the "
        "executable), libraries (name -> SHA-256 of each shared library that the programs load), "
        "processor (the only relevant feature: aes), engine (name, version and the like)",
    )
    tor: dict[str, Build] = Field(
        default={}, description="base name -> program that was built for the run"
    )
    torrc: dict[str, dict[str, TorrcSetting]] = Field(
        default={},
        description="role of hosts (with the variant, if several run; `all`: shared by all roles) "
        "-> torrc option -> its setting. Lines that contain hosts and their keys are omitted",
    )
    proofs: dict[str, int] = Field(
        default={},
        description="line that proves the behaviour of a program -> hosts that logged it; an empty "
        "line: hosts without anything to prove; `Tor never bootstrapped`: clients and onion "
        "services of an imported network that had not bootstrapped by the end",
    )
    onionlab: str = Field(default="", description="version of onionlab that performed the run")
    commit: str = Field(
        default="", description="its commit, with -dirty if files differ; empty: unknown"
    )
    started: str = Field(default="", description="when the run began, UTC, ISO 8601")
    total_wall_s: float | None = Field(
        default=None, description="wall time from the first file written to the last log checked"
    )
    wall_s: float | None = Field(default=None, description="wall time of the simulation")
    cpu_s: float | None = Field(
        default=None, description="user and system time of all its processes"
    )
    peak_memory_bytes: int | None = Field(
        default=None, description="the maximum of their total memory"
    )
    cpus: tuple[int, ...] = Field(default=(), description="CPUs of the machine reserved for it")
    host: dict[str, Any] = Field(
        default={}, description="the machine: cpu, cpus, kernel, memory_bytes, python"
    )
    log_bytes: dict[str, int] = Field(
        default={}, description="path of each file below shadow.data -> its size"
    )

    @property
    def identity_hash(self) -> str:
        """The name of the run, computed from its identity."""
        return identity_hash(self.identity)


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Return the name of a run: a hash over the canonical JSON of its identity."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_HEX_DIGITS]


def read_manifest(path: Path) -> Manifest:
    """Read a run's manifest.

    Raises:
        AnalysisError: the file is missing, not JSON, or not a manifest.
    """
    return read_as(
        Manifest,
        path,
        "manifest",
        missing="finish the experiment first",
        wrong=f"remove the run, and the experiment will repeat it: rm -r {path.parent}",
    )


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a run's manifest."""
    write_json(path, manifest.content())


def log_sizes(run: Path) -> dict[str, int]:
    """Return the size of each file below a run's ``shadow.data``: path relative to it -> bytes."""
    logs = run / files.LOGS
    paths = sorted(path for path in logs.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(logs).as_posix(): path.stat().st_size for path in paths}


def is_whole(run: Path) -> bool:
    """Return whether a run has a manifest, and no log listed there is missing or truncated.

    A loss of power or an interrupted copy may leave empty or truncated files. A run without the
    folder of logs, such as one from a pack, counts as complete. A log that was compressed later is
    accepted, whatever its size.
    """
    try:
        content = parse_json((run / files.MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    if not isinstance(content, dict):
        return False
    logs, sizes = run / files.LOGS, content.get("log_bytes", {})
    return not logs.is_dir() or all(_has_size(logs / path, size) for path, size in sizes.items())


def _has_size(path: Path, size_bytes: int) -> bool:
    try:
        return path.stat().st_size == size_bytes
    except FileNotFoundError:
        return any(path.with_name(f"{path.name}.{end}").exists() for end in ("gz", "xz", "zst"))
