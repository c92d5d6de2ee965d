"""Fetch Debian packages with apt, using a private apt state.

The system's source lists are converted into a private directory, which also holds apt's package
lists and cache. The system's configuration is not modified, root is not needed, and apt verifies
the archive's signatures and checksums as usual.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from analysis.formats.durable import put_in_place
from analysis.formats.scratch import scratch_folder
from onionlab.errors import UserError
from onionlab.programs.building import ensure_building_allowed, file_sha256

APT_TIMEOUT_S = 900.0
ROOM_BYTES = 100 * 2**20
"""Free space for the lists of Debian's archive (50 MB) and a package. apt hangs with less."""
RECORD_FILE = "source.json"

ArchiveType = Literal["deb", "deb-src"]


class PrivateApt:
    """apt-get with its lists and cache in a temporary directory.

    Attributes:
        work: The directory; apt stores downloads there.
    """

    def __init__(
        self, work: Path, log: Path, what: str, *, archives: ArchiveType, hint: str
    ) -> None:
        """Set up the state under ``work``.

        Args:
            work: An empty directory.
            log: Receives apt's whole output.
            what: The thing to fetch, for messages.
            archives: ``deb`` for binary packages, ``deb-src`` for source packages.
            hint: How to proceed without apt; the hint of errors.

        Raises:
            UserError: apt is missing, the system configures no archive, or fetching is not allowed.
        """
        ensure_building_allowed(f"{what} is missing")
        if shutil.which("apt-get") is None:
            raise UserError(f"{what} needs apt, and apt-get is missing", hint)
        free = shutil.disk_usage(work).free
        if free < ROOM_BYTES:
            raise UserError(
                f"{work.parent} has {free // 2**20} MiB of free space, and fetching {what} needs "
                f"about {ROOM_BYTES // 2**20} MiB",
                "free some space there",
            )
        self.work = work
        self._log = log
        # apt drops privileges to the user _apt for downloads, which needs access to this directory.
        work.chmod(0o755)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("", encoding="utf-8")
        self._options = _private_state(work, archives, hint)

    def get(self, *arguments: str) -> bool:
        """Run apt-get. Return True if it succeeded."""
        with self._log.open("a", encoding="utf-8") as stream:
            try:
                result = subprocess.run(
                    ["apt-get", *self._options, *arguments],
                    cwd=self.work,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env=_environment(),
                    timeout=APT_TIMEOUT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return False
        return result.returncode == 0

    def cache(self, *arguments: str) -> str:
        """Return the output of apt-cache, or an empty string if it fails."""
        return _apt_cache([*self._options, *arguments], self.work)

    def reason(self) -> str:
        """Return the line of apt's output that names the cause of its failure."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        # `update` runs first, so the first message is the cause and later ones follow from it. apt
        # reports a failed download as a warning; other warnings are not causes.
        errors = [line[2:].strip() for line in lines if line.startswith(("E:", "W: Failed"))]
        return errors[0] if errors else (lines[-1] if lines else "no output")


def read_fetched(
    folder: Path, what: str, say: Callable[[str], None]
) -> tuple[Path, dict[str, Any]] | None:
    """Return the tarball of `store_fetched` in ``folder`` and its record, if both are intact."""
    record = folder / RECORD_FILE
    try:
        facts: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        tarball, recorded = folder / facts["file"], facts["sha256"]
        if not isinstance(facts["version"], str):
            raise ValueError("the version is not a string")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        say(f"{record} cannot be read: fetching {what} again")
        return None
    if not tarball.is_file() or file_sha256(tarball) != recorded:
        say(f"{tarball} has changed since it was fetched (SHA-256 differs): fetching {what} again")
        return None
    return tarball, facts


def store_fetched(folder: Path, work: Path, files: Iterable[Path], facts: dict[str, Any]) -> Path:
    """Move fetched files and a record of ``facts`` to ``folder``. Return the tarball there.

    The folder appears atomically, so an interrupted fetch never looks like a complete source.
    """
    staged = work / "staged"
    staged.mkdir()
    for path in files:
        path.rename(staged / path.name)
    record = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    (staged / RECORD_FILE).write_text(record, encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    put_in_place(staged, folder)
    return folder / str(facts["file"])


def fetch_source_package(
    cache: Path, package: str, what: str, say: Callable[[str], None], *, hint: str
) -> tuple[Path, dict[str, Any]]:
    """Fetch the upstream tarball of a source package and store it as ``cache``.

    Debian's packaging is not used. apt verifies the archive's signatures, and the tarball's SHA-256
    has to match the package's description.

    Args:
        cache: The folder for the tarball, see :func:`store_fetched`; the log goes to its parent.
        package: The source package.
        what: The name of its content, for messages.
        say: Receives progress messages.
        hint: How to proceed without apt; the hint of errors.

    Returns:
        The tarball and the facts about it that a manifest records.

    Raises:
        UserError: apt is missing, the system configures no archive, or the package is unavailable.
    """
    cache.parent.mkdir(parents=True, exist_ok=True)
    log = cache.parent / "logs" / "source.log"
    say(f"fetching {what}'s source package with apt")
    with scratch_folder(cache.parent, ".fetch-") as work:
        apt = PrivateApt(work, log, f"{what}'s source package", archives="deb-src", hint=hint)
        # An index of an unrelated archive may be missing (for example one without sources). Only
        # whether the package can be fetched afterwards matters.
        apt.get("update")
        if not apt.get("source", "--download-only", package):
            raise UserError(
                f"{what}'s source package could not be fetched: {apt.reason()}",
                f"apt's whole output: {log}\n{hint}",
            )
        facts, files = _read_description(work, package, what, hint)
        tarball = store_fetched(cache, work, files, facts)
    say(f"{what} {facts['version']} (Debian {facts['package_version']}, SHA-256 {facts['sha256']})")
    return tarball, facts


def _read_description(
    work: Path, package: str, what: str, hint: str
) -> tuple[dict[str, Any], list[Path]]:
    """Return facts and files of the source package that was downloaded into ``work``."""
    descriptions = sorted(work.glob("*.dsc"))
    if len(descriptions) != 1:
        raise UserError(f"apt fetched no source package of {what}", hint)
    description = descriptions[0]
    text = description.read_text(encoding="utf-8", errors="replace")
    fields = dict(deb822_fields(text))
    checksums = {
        words[2]: words[0]
        for words in (line.split() for line in fields.get("checksums-sha256", "").splitlines())
        if len(words) == 3
    }
    tarball = _upstream_tarball(checksums)
    if tarball is None or not (work / tarball).is_file():
        raise UserError(f"{description.name} names no upstream tarball", hint)
    sha256 = file_sha256(work / tarball)
    if sha256 != checksums[tarball]:
        raise UserError(f"{tarball}: SHA-256 {sha256} is not the one in {description.name}", hint)
    package_version = fields["version"]
    facts = {
        "kind": "debian",
        "package": package,
        "package_version": package_version,
        "version": package_version.split(":", 1)[-1].rsplit("-", 1)[0],
        "file": tarball,
        "sha256": sha256,
    }
    return facts, [description, work / tarball]


def _upstream_tarball(names: Iterable[str]) -> str | None:
    return next((name for name in names if re.search(r"\.orig\.tar\.[a-z0-9]+$", name)), None)


def query_system_apt(*arguments: str) -> str:
    """Return apt-cache's output with the system's own lists, or an empty string if it fails."""
    return _apt_cache(arguments, None)


def _apt_cache(arguments: Sequence[str], directory: Path | None) -> str:
    try:
        result = subprocess.run(
            ["apt-cache", *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=_environment(),
            timeout=APT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def _private_state(work: Path, archives: ArchiveType, hint: str) -> list[str]:
    """Set up an apt state under ``work``. Return the options that make apt use it.

    Raises:
        UserError: The system configures no archive.
    """
    parts = work / "sources"
    for directory in (parts, work / "lists" / "partial", work / "cache" / "archives" / "partial"):
        directory.mkdir(parents=True)
    found = False
    for index, path in enumerate(_system_source_files()):
        text = path.read_text(encoding="utf-8", errors="replace")
        convert = deb822_sources if path.suffix == ".sources" else one_line_sources
        converted = convert(text, archives)
        if converted:
            found = True
            target = parts / f"{index:02}{'.sources' if path.suffix == '.sources' else '.list'}"
            target.write_text(converted, encoding="utf-8")
    if not found:
        raise UserError("apt has no package archive configured on this system", hint)
    configuration = work / "apt.conf"
    # The system's hooks (APT::Update::Post-Invoke...) are meant for its own lists.
    configuration.write_text(
        "#clear APT::Update;\n"
        f'Dir::Etc::SourceList "/dev/null";\n'
        f'Dir::Etc::SourceParts "{parts}";\n'
        f'Dir::State::Lists "{work / "lists"}";\n'
        f'Dir::Cache "{work / "cache"}";\n'
        'Acquire::Languages "none";\n'
        'Acquire::Retries "2";\n'
        + ('APT::Get::Only-Source "true";\n' if archives == "deb-src" else ""),
        encoding="utf-8",
    )
    return ["-q", "-c", str(configuration)]


def _system_source_files() -> list[Path]:
    """Return the files that configure this system's package archives."""
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


def one_line_sources(text: str, archives: ArchiveType) -> str:
    """Return lines of that type for every archive of a ``sources.list`` (see sources.list(5))."""
    # An archive of packages also offers their sources. The converse does not hold.
    kind = "deb(?:-src)?" if archives == "deb-src" else "deb"
    lines = dict.fromkeys(
        f"{archives} {match[1].strip()}"
        for match in re.finditer(rf"^\s*{kind}\s+([^#\n]+)", text, re.MULTILINE)
        if "cdrom:" not in match[1]
    )
    return "".join(line + "\n" for line in lines)


def deb822_sources(text: str, archives: ArchiveType) -> str:
    """Return a ``.sources`` file's stanzas for one type of packages (see sources.list(5))."""
    without_comments = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    stanzas = []
    for stanza in re.split(r"\n[ \t]*\n", without_comments.strip()):
        fields = dict(deb822_fields(stanza))
        if not {"deb", archives} & set(fields.get("types", "").split()):
            continue
        if fields.get("enabled", "yes").strip().lower() in {"no", "false", "0", "off", "without"}:
            continue
        stanzas.append(
            re.sub(r"^types:.*$", f"Types: {archives}", stanza, flags=re.IGNORECASE | re.MULTILINE)
        )
    return "\n\n".join(stanzas) + "\n" if stanzas else ""


def deb822_fields(stanza: str) -> Iterator[tuple[str, str]]:
    """Yield the name (in lower case) and the value of each field of a stanza (see deb822(5))."""
    for match in re.finditer(r"^([A-Za-z0-9-]+):(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE):
        yield match[1].lower(), match[2].strip()
