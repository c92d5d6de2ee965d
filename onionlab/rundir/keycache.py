"""Cache generated keys: all jobs of a seed need the same, and an authority's take seconds.

A cached file is used only if its checksum is correct. Each version of the generating code has its
own directory. The cache can therefore be removed, truncated or copied without changing a run.
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
    """Return the keys of `keys.make_authority_keys`, generated once per checkout."""
    file = _folder(root) / f"{seed}-{name}.json"
    return _load_or_generate(file, keys.AuthorityKeys, lambda: keys.make_authority_keys(seed, name))


@functools.cache
def relay_keys(root: Path, seed: int, name: str) -> keys.RelayKeys:
    """Return the keys of `keys.make_relay_keys`, generated once per checkout."""
    file = _folder(root) / f"relay-{seed}-{name}.json"
    return _load_or_generate(file, keys.RelayKeys, lambda: keys.make_relay_keys(seed, name))


def has_keys(root: Path, seed: int) -> bool:
    """Return whether the cache contains keys of this seed, so that composing its runs is fast."""
    return any(_folder(root).glob(f"{seed}-*.json"))


def _folder(root: Path) -> Path:
    return build_directory(root) / "keys" / _generator_hash()


@functools.cache
def _generator_hash() -> str:
    """Return a hash of the code that generates keys, including the version of Crypto."""
    digest = hashlib.sha256(Crypto.__version__.encode())
    for module in (keys, draws):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:16]


def _load_or_generate(file: Path, kind: type[Keys], make: Callable[[], Keys]) -> Keys:
    """Return the keys in the file if it is valid. Otherwise generate them and write the file."""
    try:
        stored = read_json(file)
        if stored["sha256"] == _checksum(stored["keys"]):
            return _from_json(kind, stored["keys"])
    except (AnalysisError, ValueError, KeyError, TypeError, AttributeError):
        pass  # The file is missing or invalid, so the keys are generated below.
    generated = make()
    data = _to_json(generated)
    write_json(file, {"sha256": _checksum(data), "keys": data}, durable=False)
    return generated


def _to_json(generated: keys.AuthorityKeys | keys.RelayKeys) -> dict[str, Any]:
    files = {name: base64.b64encode(content).decode() for name, content in generated.files.items()}
    return {**dataclasses.asdict(generated), "files": files}


def _from_json(kind: type[Keys], data: dict[str, Any]) -> Keys:
    files = {name: base64.b64decode(content) for name, content in data["files"].items()}
    return kind(**{**data, "files": files})


def _checksum(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
