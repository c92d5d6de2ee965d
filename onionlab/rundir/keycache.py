"""Keys that were drawn before: all jobs of a seed need the same, and an authority's take seconds.

A cached file counts only if its own checksum holds; what was made by other code than today's has
another directory. So the cache can be removed, cut or copied and never changes a run.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import Crypto

from analysis.errors import AnalysisError
from analysis.formats.json_files import read_json, write_json
from onionlab.network import draws
from onionlab.paths import build_directory
from onionlab.rundir import keys

Keys = TypeVar("Keys", keys.AuthorityKeys, keys.RelayKeys)


@functools.cache
def authority_keys(root: Path, seed: int, name: str) -> keys.AuthorityKeys:
    """Return what `keys.make_authority_keys` makes, drawn once in a checkout."""
    file = _folder(root) / f"{seed}-{name}.json"
    return _drawn_once(file, keys.AuthorityKeys, lambda: keys.make_authority_keys(seed, name))


@functools.cache
def relay_keys(root: Path, seed: int, name: str) -> keys.RelayKeys:
    """Return what `keys.make_relay_keys` makes, drawn once in a checkout."""
    file = _folder(root) / f"relay-{seed}-{name}.json"
    return _drawn_once(file, keys.RelayKeys, lambda: keys.make_relay_keys(seed, name))


def has_keys(root: Path, seed: int) -> bool:
    """Whether keys of this seed were drawn before, so that composing its runs takes no time."""
    return any(_folder(root).glob(f"{seed}-*.json"))


def _folder(root: Path) -> Path:
    return build_directory(root) / "keys" / _maker()


@functools.cache
def _maker() -> str:
    """Name the code that draws keys: this project's, and the library that finds the primes."""
    digest = hashlib.sha256(Crypto.__version__.encode())
    for module in (keys, draws):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:16]


def _drawn_once(file: Path, kind: type[Keys], make: Callable[[], Keys]) -> Keys:
    """What the file holds, if it is whole, or else what `make` makes, which the file holds then."""
    try:
        stored = read_json(file)
        if stored["sha256"] == _checksum(stored["keys"]):
            return _from_json(kind, stored["keys"])
    except (AnalysisError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not there, or not whole: drawn again below
    made = make()
    data = _to_json(made)
    write_json(file, {"sha256": _checksum(data), "keys": data}, durable=False)
    return made


def _to_json(made: keys.AuthorityKeys | keys.RelayKeys) -> dict[str, Any]:
    files = {name: base64.b64encode(content).decode() for name, content in made.files.items()}
    return {**dataclasses.asdict(made), "files": files}


def _from_json(kind: type[Keys], data: dict[str, Any]) -> Keys:
    files = {name: base64.b64decode(content) for name, content in data["files"].items()}
    return kind(**{**data, "files": files})


def _checksum(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
