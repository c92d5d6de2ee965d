"""manifest.json: what a finished run was made of, and what it took. Its identity names the run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from analysis.formats.format_model import FormatModel
from analysis.formats.json_files import read_as, write_json

ID_HEX_DIGITS = 16


class Build(FormatModel):
    """One program that was built for the run."""

    version: str = Field(description="of the program")
    sha256: str = Field(description="of the executable")
    source: Any = Field(default=None, description="what it was built from, with which toolchain")


class Manifest(FormatModel):
    """manifest.json: what a finished run was made of, and what it took."""

    format: Literal[1] = Field(default=1, description="version")
    run_id: str = Field(default="", description="the run's name in the store: hash of identity")
    title: str = Field(default="", description="level, variant and seed, for people")
    seed: int | None = Field(default=None, description="seed of all that is drawn")
    variant: str = Field(default="", description="which system")
    identity: dict[str, Any] = Field(
        default={},
        description="all that determines the run's results: format (its version), files (path -> "
        "SHA-256 of each file the run starts from), programs (name -> SHA-256 of the executable), "
        "libraries (name -> SHA-256 of each shared library that the programs load), "
        "processor (the only feature that decides: aes), "
        "engine (name, version and the like)",
    )
    tor: dict[str, Build] = Field(
        default={}, description="base name -> program that was built for the run"
    )
    proofs: dict[str, int] = Field(
        default={},
        description="line that proves what a program did -> hosts that logged it; an empty line: "
        "hosts that had nothing to prove; `Tor never bootstrapped`: clients and onion services of "
        "an imported network that were not there by the end",
    )
    onionlab: str = Field(default="", description="version of the program that made the run")
    commit: str = Field(
        default="", description="its commit, with -dirty where files differ; empty: not known"
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
        default=None, description="the largest sum of their memory"
    )
    cpus: tuple[int, ...] = Field(default=(), description="the machine's CPUs that it had")
    host: dict[str, Any] = Field(
        default={}, description="the machine: cpu, cpus, kernel, memory_bytes, python"
    )

    @property
    def identity_hash(self) -> str:
        """What the run has to be called, by all that determines it."""
        return identity_hash(self.identity)


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Return the name of a run: a hash over the canonical JSON of its identity."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_HEX_DIGITS]


def read_manifest(path: Path) -> Manifest:
    """Reads a run's manifest.

    Raises:
        AnalysisError: missing, not JSON, or no manifest.
    """
    return read_as(
        Manifest, path, "manifest", missing="finish the experiment first", wrong="make it again"
    )


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Writes a run's manifest."""
    write_json(path, manifest.content())
