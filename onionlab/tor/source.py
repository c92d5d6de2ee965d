"""Tor's source: Debian's source package through apt, or a local tarball or tree.

apt is used with a state of its own: the system's sources are read, turned into ``deb-src`` lines in
a private directory, and the lists and the cache live there too. The system's configuration stays as
it is, root is not needed, and apt checks the archive's signatures and checksums as ever.

Only the upstream tarball (``tor_VERSION.orig.tar.*``) is built. Debian's packaging is left out: it
adds nothing to the program that an experiment runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onionlab.errors import UserError
from onionlab.paths import build_directory

__all__ = ["TorSource", "file_sha256", "obtain_source", "unpack_source"]

PACKAGE = "tor"
ENVIRONMENT_VARIABLE = "TOR_SOURCE"
WAY_OUT = (
    "To build from a source of your own, name a release tarball or an unpacked tree: "
    f"{ENVIRONMENT_VARIABLE}=/path/to/tor-0.4.9.x.tar.gz (releases: https://dist.torproject.org/)."
)
APT_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class TorSource:
    """One Tor source, unmistakably.

    Attributes:
        kind: ``debian`` (source package), ``tarball`` or ``tree``.
        path: The tarball, or the tree's directory.
        version: Tor's version, e.g. ``0.4.9.11``; None until it is unpacked, for a local tarball.
        sha256: Of the tarball's bytes; for a tree of the sorted list of its files (path, whether
            executable, content).
        facts: What a manifest should record of it; JSON.
    """

    kind: str
    path: Path
    version: str | None
    sha256: str
    facts: dict[str, Any]


def obtain_source(
    root: Path,
    tor_source: str | None = None,
    *,
    update: bool = False,
    say: Callable[[str], None] = print,
) -> TorSource:
    """Tor's source, fetched when it is not there yet.

    Args:
        root: The checkout.
        tor_source: A tarball or a tree; None or empty for Debian's source package.
        update: Ask Debian for its current version although one was fetched before. Without it the
            first version stays, so that a later build gives the same program.
        say: Receives a line for whatever takes time.

    Raises:
        UserError: The source cannot be fetched or is not Tor's.
    """
    if tor_source:
        return _local_source(Path(tor_source).expanduser())
    cache = build_directory(root) / "tor" / "source"
    if not update:
        cached = _cached_source(cache, say)
        if cached is not None:
            return cached
    return _fetch_debian_source(cache, say)


def unpack_source(source: TorSource, destination: Path) -> str:
    """Lay the source out in ``destination`` (which must not exist); returns Tor's version.

    Raises:
        UserError: The tarball is cut or damaged, or holds something else than Tor.
    """
    destination.mkdir(parents=True)
    if source.kind == "tree":
        for name in tree_files(source.path):
            target = destination / name
            target.parent.mkdir(parents=True, exist_ok=True)
            # With its time stamps: automake would otherwise run for files that are up to date.
            shutil.copy2(source.path / name, target, follow_symlinks=False)
    else:
        result = subprocess.run(
            ["tar", "-xf", source.path, "-C", destination, "--strip-components=1"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if result.returncode != 0:
            reason = (result.stderr.strip().splitlines() or ["tar failed"])[0]
            raise UserError(f"{source.path} is cut or damaged: {reason}", WAY_OUT)
    return tor_version(destination, source.path)


def tor_version(tree: Path, origin: Path) -> str:
    """Tor's version according to ``configure.ac`` in ``tree``.

    Raises:
        UserError: ``origin``, where the tree comes from, is not Tor's source.
    """
    try:
        text = (tree / "configure.ac").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^AC_INIT\(\[tor\],\s*\[([^\]]+)\]\)", text, re.MULTILINE)
    if match is None:
        raise UserError(f"{origin} is not Tor's source: no configure.ac that names tor", WAY_OUT)
    return match[1]


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# A local tarball or tree


def _local_source(path: Path) -> TorSource:
    if path.is_dir():
        version = tor_version(path, path)
        sha256 = _tree_sha256(path)
        facts: dict[str, Any] = {"kind": "tree", "version": version, "sha256": sha256}
        commit = _git(path, "describe", "--always", "--dirty", "--abbrev=12")
        if commit is not None:
            facts["commit"] = commit.strip()
        return TorSource("tree", path.resolve(), version, sha256, facts)
    if not path.is_file():
        raise UserError(
            f"{ENVIRONMENT_VARIABLE}: there is no {path}",
            "It takes a release tarball or an unpacked tree; without it Debian's source package "
            "is fetched with apt.",
        )
    sha256 = file_sha256(path)
    facts = {"kind": "tarball", "file": path.name, "sha256": sha256}
    return TorSource("tarball", path.resolve(), None, sha256, facts)


def tree_files(tree: Path) -> list[Path]:
    """The files that make up a source tree, sorted, relative to it.

    In a git work tree: what git tracks or would track. Otherwise every file; the tree must then be
    as unpacked, because stale objects would otherwise become part of every build.

    Raises:
        UserError: The tree has been configured in place.
    """
    listed = _git(tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        names = {Path(name) for name in listed.split("\0") if name}
        files = [name for name in names if (tree / name).is_symlink() or (tree / name).is_file()]
    else:
        if (tree / "config.status").exists():
            raise UserError(
                f"{tree} has been configured in place",
                "Run `make distclean` there, or unpack the source anew.",
            )
        files = [
            path.relative_to(tree)
            for path in tree.rglob("*")
            if path.is_symlink() or path.is_file()
        ]
    return sorted(files, key=lambda name: name.as_posix())


def _tree_sha256(tree: Path) -> str:
    digest = hashlib.sha256()
    for name in tree_files(tree):
        path = tree / name
        if path.is_symlink():
            mode, content = "link", os.fsencode(path.readlink())
        else:
            mode = "exec" if path.stat().st_mode & 0o100 else "file"
            content = path.read_bytes()
        digest.update(f"{mode} {len(content)} {name.as_posix()}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _git(tree: Path, *arguments: str) -> str | None:
    """Output of git in ``tree``, or None where ``tree`` is not the top of a work tree."""
    if not (tree / ".git").exists():
        return None
    try:
        result = subprocess.run(
            ["git", "-C", tree, *arguments],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None


# Debian's source package


def _cached_source(cache: Path, say: Callable[[str], None]) -> TorSource | None:
    record = cache / "source.json"
    try:
        facts = json.loads(record.read_text(encoding="utf-8"))
        tarball = cache / facts["file"]
        recorded = facts["sha256"]
        version = facts["version"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        say(f"{record} is not readable: fetching Tor's source again")
        return None
    if not tarball.is_file() or file_sha256(tarball) != recorded:
        say(f"{tarball} is not what was fetched (SHA-256 differs): fetching Tor's source again")
        return None
    return TorSource("debian", tarball, version, recorded, facts)


def _fetch_debian_source(cache: Path, say: Callable[[str], None]) -> TorSource:
    if shutil.which("apt-get") is None:
        raise UserError("Tor's source package needs apt, and there is no apt-get here", WAY_OUT)
    cache.parent.mkdir(parents=True, exist_ok=True)
    log = cache.parent / "logs" / "source.log"
    log.parent.mkdir(exist_ok=True)
    say("fetching Tor's source package with apt")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache.parent) as name:
        work = Path(name)
        # apt drops to the user _apt for downloads and must be able to reach the place.
        work.chmod(0o755)
        options = _private_apt(work)
        with log.open("w", encoding="utf-8") as stream:
            # An index of some other archive may be missing (no sources there): what counts is
            # whether the package can be had afterwards.
            _apt(work, stream, *options, "update")
            fetched = _apt(work, stream, *options, "source", "--download-only", PACKAGE)
        if not fetched:
            raise UserError(
                f"Tor's source package could not be fetched: {_apt_reason(log)}",
                f"apt's whole output: {log}\n{WAY_OUT}",
            )
        facts, files = _read_description(work)
        # Move what belongs together at once, the record last: what is cut short is not a source.
        staged = work / "staged"
        staged.mkdir()
        for path in files:
            path.rename(staged / path.name)
        record = json.dumps(facts, indent=2, sort_keys=True) + "\n"
        (staged / "source.json").write_text(record, encoding="utf-8")
        shutil.rmtree(cache, ignore_errors=True)
        staged.rename(cache)
    say(f"Tor {facts['version']} (Debian {facts['package_version']}, SHA-256 {facts['sha256']})")
    return TorSource("debian", cache / facts["file"], facts["version"], facts["sha256"], facts)


def _private_apt(work: Path) -> list[str]:
    """Set up an apt state under ``work``; returns the options that make apt use it.

    Raises:
        UserError: The system names no archive that could have sources.
    """
    parts = work / "sources"
    for directory in (parts, work / "lists" / "partial", work / "cache" / "archives" / "partial"):
        directory.mkdir(parents=True)
    found = False
    for index, path in enumerate(_system_source_files()):
        text = path.read_text(encoding="utf-8", errors="replace")
        convert = deb822_sources if path.suffix == ".sources" else one_line_sources
        converted = convert(text)
        if converted:
            found = True
            target = parts / f"{index:02}{'.sources' if path.suffix == '.sources' else '.list'}"
            target.write_text(converted, encoding="utf-8")
    if not found:
        raise UserError("apt has no package archive configured on this system", WAY_OUT)
    configuration = work / "apt.conf"
    # The system's hooks (APT::Update::Post-Invoke...) are for its own lists.
    configuration.write_text(
        "#clear APT::Update;\n"
        f'Dir::Etc::SourceList "/dev/null";\n'
        f'Dir::Etc::SourceParts "{parts}";\n'
        f'Dir::State::Lists "{work / "lists"}";\n'
        f'Dir::Cache "{work / "cache"}";\n'
        'Acquire::Languages "none";\n'
        'Acquire::Retries "2";\n'
        'APT::Get::Only-Source "true";\n',
        encoding="utf-8",
    )
    return ["-q", "-c", str(configuration)]


def _system_source_files() -> list[Path]:
    """The files in which this system names its package archives."""
    answer = subprocess.run(
        [
            "apt-config",
            "shell",
            "LIST",
            "Dir::Etc::SourceList/f",
            "PARTS",
            "Dir::Etc::SourceParts/d",
        ],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    named = dict(
        line.split("=", 1) for line in shlex.split(answer.replace("\n", " ")) if "=" in line
    )
    files = [Path(named.get("LIST", "/etc/apt/sources.list"))]
    parts = Path(named.get("PARTS", "/etc/apt/sources.list.d"))
    files += sorted(p for p in parts.glob("*") if p.suffix in {".list", ".sources"})
    return [path for path in files if path.is_file()]


def one_line_sources(text: str) -> str:
    """``deb-src`` lines for every archive of a ``sources.list`` (see sources.list(5))."""
    lines = dict.fromkeys(
        "deb-src " + match[1].strip()
        for match in re.finditer(r"^\s*deb(?:-src)?\s+([^#\n]+)", text, re.MULTILINE)
        if "cdrom:" not in match[1]
    )
    return "".join(line + "\n" for line in lines)


def deb822_sources(text: str) -> str:
    """The stanzas of a ``.sources`` file with ``Types: deb-src`` (see sources.list(5))."""
    without_comments = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    stanzas = []
    for stanza in re.split(r"\n[ \t]*\n", without_comments.strip()):
        fields = dict(_deb822_fields(stanza))
        if not {"deb", "deb-src"} & set(fields.get("types", "").split()):
            continue
        if fields.get("enabled", "yes").strip().lower() in {"no", "false", "0", "off", "without"}:
            continue
        stanzas.append(
            re.sub(r"^types:.*$", "Types: deb-src", stanza, flags=re.IGNORECASE | re.MULTILINE)
        )
    return "\n\n".join(stanzas) + "\n" if stanzas else ""


def _deb822_fields(stanza: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(r"^([A-Za-z0-9-]+):(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE):
        yield match[1].lower(), match[2].strip()


def _apt(work: Path, stream: Any, *arguments: str) -> bool:
    """Run apt-get in ``work``; whether it succeeded."""
    try:
        result = subprocess.run(
            ["apt-get", *arguments],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            timeout=APT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return result.returncode == 0


def _apt_reason(log: Path) -> str:
    """The line of apt's output that says best why it failed."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line[2:].strip() for line in lines if line.startswith(("E:", "W:"))]
    # `update` comes first, so the first message is the cause and the later ones follow from it.
    return errors[0] if errors else (lines[-1] if lines else "no output")


def _read_description(work: Path) -> tuple[dict[str, Any], list[Path]]:
    """Facts and files of the source package that was downloaded into ``work``."""
    descriptions = sorted(work.glob("*.dsc"))
    if len(descriptions) != 1:
        raise UserError("apt fetched no source package of Tor", WAY_OUT)
    description = descriptions[0]
    text = description.read_text(encoding="utf-8", errors="replace")
    fields = dict(_deb822_fields(text))
    checksums = {
        words[2]: words[0]
        for words in (line.split() for line in fields.get("checksums-sha256", "").splitlines())
        if len(words) == 3
    }
    tarball = _upstream_tarball(checksums)
    if tarball is None or not (work / tarball).is_file():
        raise UserError(f"{description.name} names no upstream tarball", WAY_OUT)
    sha256 = file_sha256(work / tarball)
    if sha256 != checksums[tarball]:
        raise UserError(
            f"{tarball}: SHA-256 {sha256} is not the one in {description.name}", WAY_OUT
        )
    package_version = fields["version"]
    facts = {
        "kind": "debian",
        "package": PACKAGE,
        "package_version": package_version,
        "version": package_version.split(":", 1)[-1].rsplit("-", 1)[0],
        "file": tarball,
        "sha256": sha256,
    }
    return facts, [description, work / tarball]


def _upstream_tarball(names: Iterable[str]) -> str | None:
    return next((name for name in names if re.search(r"\.orig\.tar\.[a-z0-9]+$", name)), None)
