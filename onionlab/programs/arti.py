"""Build Arti, Tor's client in Rust, with cargo from its crate and the crate's lock file.

The layout under ``build/arti``::

    source/arti-VERSION.crate  the crate, as cargo fetched it
    source/arti-VERSION/       the same, unpacked
    target/                    cargo's files; an interrupted build continues with them
    store/VERSION-KEY/bin/     a finished build: arti-VERSION
    logs/                      cargo's whole output

KEY is a hash of the crate, its features and FORMAT. It does not depend on the version of Rust, so
a finished build can be used without Rust. The build's record has this version. cargo verifies the
SHA-256 of each crate.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    BuiltProgram,
    build_environment,
    build_lock,
    ensure_building_allowed,
    file_sha256,
    first_line,
    hash_inputs,
    intact_build,
    new_log,
    no_builds,
    put_build,
    read_build,
    run_logged,
    work_directory,
)
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.units import show

FORMAT = 1
"""A part of the key of a build. Increase it when the build procedure changes."""

DEFAULT_VERSION = "2.7.0"
CRATE_SHA256 = {DEFAULT_VERSION: "a567e05cf614b579609d958e41b54602eea6983bccfec46d1e933a45605dd813"}
"""Version of Arti -> SHA-256 of its crate. cargo verifies the download of every version. In
addition, crates of the versions in this table are compared with a known hash."""

MIN_RUST = {DEFAULT_VERSION: "1.92"}
MIN_CARGO = "1.82"
"""The first version with ``cargo info``, for versions of Arti that are not in MIN_RUST."""

FEATURES = (
    *("tokio", "native-tls", "compression", "onion-service-client", "vanguards", "flowctl-cc"),
    "static-sqlite",
)
"""The crate's default features without dns-proxy, harden, bridge-client and pt-client, which no
simulated client needs. With static-sqlite no package of SQLite is needed."""

_KEPT_VARIABLES = re.compile(r"(CARGO_HOME|RUSTUP_\w+|SSL_CERT_\w+|(?i:(http|https|all|no)_proxy))")
_HINT = (
    "Install the current Rust with https://rustup.rs, or compare variants without `client: arti`."
)

_REMOVE = "Remove this file, and it is fetched again."


class ArtiClient(Model):
    """Clients of Arti, which replace clients of C Tor."""

    arti: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")] = key(
        description="version of the crate `arti`"
    )

    @property
    def program(self) -> str:
        """The base name of the executable."""
        return f"arti-{self.arti}"


def _parse_client(value: object) -> object:
    if isinstance(value, str) and value != "arti":
        example = f"{{arti: {DEFAULT_VERSION}}}"
        raise ValueError(f"expected arti or a version such as {example}, got {show(value)}")
    return {"arti": DEFAULT_VERSION} if value == "arti" else value


AnyClient = Annotated[ArtiClient | None, BeforeValidator(_parse_client)]
"""The value of a variant's key `client`: ``arti``, a version of Arti, or None for C Tor."""


@dataclass(frozen=True)
class ArtiSource:
    """A fetched crate of Arti, which is built or which the installed Rust can build.

    directory: the folder ``build/arti``. facts: everything that determines the build's content,
    except for the compilers, as JSON.
    """

    directory: Path
    client: ArtiClient
    crate: Path
    facts: dict[str, Any]

    @property
    def store(self) -> Path:
        """The folder of the finished build."""
        return self.directory / "store" / f"{self.client.arti}-{hash_inputs(self.facts)}"


def installed_rust(client: ArtiClient, needed: str | None = None) -> str:
    """Return the version of the installed Rust.

    needed: the minimum version; by default the version in MIN_RUST, or MIN_CARGO. Raises UserError
    if cargo or rustc is missing or too old.
    """
    rustc = first_line("rustc", "--version", environment=_environment())
    if shutil.which("cargo") is None or not rustc:
        lacking = "cargo" if rustc else "rustc"
        raise UserError(f"Arti {client.arti} is built with Rust, and `{lacking}` is missing", _HINT)
    needed = needed or MIN_RUST.get(client.arti, MIN_CARGO)
    if _numbers(rustc) < _numbers(needed):
        raise UserError(f"Arti {client.arti} needs Rust {needed}, and this is {rustc}", _HINT)
    return rustc


def obtain_arti(root: Path, client: ArtiClient) -> ArtiSource:
    """Fetch the crate of a version of Arti if it is missing.

    If this version is not built yet, check that the installed Rust can build it. Raises UserError
    if Rust is missing or too old, or if the version does not exist, cannot be fetched, is damaged,
    or has another SHA-256 than CRATE_SHA256 states.
    """
    directory = build_directory(root) / "arti"
    crate = directory / "source" / f"{client.program}.crate"
    if not crate.is_file():
        ensure_building_allowed(f"the crate of Arti {client.arti} is not fetched")
        installed_rust(client)
        with build_lock(directory, "Arti"):
            if not crate.is_file():
                _fetch(client, crate)
    sha256 = file_sha256(crate)
    if sha256 != CRATE_SHA256.get(client.arti, sha256):
        message = f"{crate} has SHA-256 {sha256}, not {CRATE_SHA256[client.arti]}"
        raise UserError(message, _REMOVE)
    facts = {
        "arti": {"kind": "crate", "version": client.arti, "sha256": sha256},
        "features": list(FEATURES),
        "format": FORMAT,
    }
    source = ArtiSource(directory, client, crate, facts)
    if intact_build(source.store, client.program) is None:
        ensure_building_allowed(f"{client.program} is not built")
        installed_rust(client, _needed_rust(source))
    return source


def _needed_rust(source: ArtiSource) -> str | None:
    """Return the version of Rust that a crate requires, or None if the crate does not say."""
    try:
        with tarfile.open(source.crate) as archive:
            manifest = archive.extractfile(f"{source.client.program}/Cargo.toml")
            text = manifest.read().decode() if manifest else ""
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise UserError(f"{source.crate} is damaged: {error}", _REMOVE) from None
    stated = re.search(r'^rust-version = "([\d.]+)"', text, re.MULTILINE)
    return stated[1] if stated else None


def ensure_arti(source: ArtiSource, *, jobs: int | None = None) -> BuiltProgram:
    """Build a version of Arti unless it is built. A build takes about 20 minutes of CPU time.

    jobs: number of parallel compilers; by default one per CPU. Raises UserError if the build fails.
    """
    built = intact_build(source.store, source.client.program)
    if built is not None:
        return built
    with build_lock(source.directory, "Arti"):
        return read_build(source.store, source.client.program) or _build(source, jobs)


def is_built(root: Path, client: ArtiClient) -> bool:
    """Return whether a version of Arti is built."""
    try:
        with no_builds():
            ensure_arti(obtain_arti(root, client))
    except UserError:
        return False
    return True


def _build(source: ArtiSource, jobs: int | None) -> BuiltProgram:
    program, directory = source.client.program, source.directory.resolve()
    ensure_building_allowed(f"{program} is not built")
    rustc = installed_rust(source.client, _needed_rust(source))
    tree, target = source.crate.with_suffix("").resolve(), directory / "target"
    with tarfile.open(source.crate) as archive:
        # Debian 12's Python 3.11.2 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        archive.extractall(tree.parent)
    command = [
        *("cargo", "build", "--release", "--locked", "--bin", "arti", "--target-dir", str(target)),
        *("--no-default-features", "--features", ",".join(FEATURES)),
        *(("--jobs", str(jobs)) if jobs else ()),
    ]
    # The executable must not contain paths of this machine: its hash is a part of a run's identity.
    homes = {_cargo_home(): "/cargo", directory: "/arti"}
    environment = {
        **_environment(),
        "CARGO_HOME": str(_cargo_home()),
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(
            f"--remap-path-prefix={path}={name}" for path, name in homes.items()
        ),
        "CARGO_PROFILE_RELEASE_STRIP": "symbols",
    }
    what = f"{program}: compile (about 20 minutes of CPU time)"
    run_logged(command, tree, new_log(directory, program), what, environment=environment)
    executable = target / "release" / "arti"
    if not executable.is_file():
        hint = f"If {_cargo_home()}/config.toml sets `build.target`, remove it."
        raise UserError(f"cargo has not written {executable}", hint)
    toolchain = {"rust": rustc, "compiler": first_line("cc", "--version")}
    with work_directory(directory) as work:
        built = put_build(
            work,
            source.store,
            {program: executable},
            build_format=FORMAT,
            version=lambda _: source.client.arti,
            source={**source.facts, "toolchain": toolchain},
        )
    shutil.rmtree(target, ignore_errors=True)
    return built


def _fetch(client: ArtiClient, crate: Path) -> None:
    """Have cargo fetch and verify the crate, and copy it."""
    name = f"arti@{client.arti}"
    command = ["cargo", "info", "--color=never", "--registry=crates-io", name]
    crate.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command, cwd=crate.parent, capture_output=True, text=True, env=_environment(), check=False
    )
    if done.returncode != 0:
        if "could not find" in done.stderr:
            hint = f"Versions: https://crates.io/crates/arti/versions. Tested: {DEFAULT_VERSION}."
            raise UserError(f"Arti has no version {client.arti}", hint)
        raise UserError(f"cargo cannot fetch {name}", done.stderr.strip())
    found = next(_cargo_home().glob(f"registry/cache/*/{crate.name}"), None)
    if found is None:
        raise UserError(f"cargo has not stored {crate.name} in {_cargo_home()}/registry/cache")
    with work_directory(crate.parent) as work:
        shutil.copyfile(found, work / crate.name).replace(crate)


def _cargo_home() -> Path:
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo").resolve()


def _environment() -> dict[str, str]:
    """Return the environment of a build, with the variables that Rust's programs need."""
    kept = {name: text for name, text in os.environ.items() if _KEPT_VARIABLES.fullmatch(name)}
    return build_environment() | kept


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first version in a text, e.g. (1, 95, 0)."""
    found = re.search(r"\d+(?:\.\d+)+", version)
    return tuple(map(int, found[0].split("."))) if found else ()
