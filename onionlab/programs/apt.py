"""Packages of Debian and its relatives through apt, with a state of apt's of our own.

The system's sources are read and laid out in a private directory, and the lists and the cache live
there too. The system's configuration stays as it is, root is not needed, and apt checks the
archive's signatures and checksums as ever.
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
from onionlab.programs.building import file_sha256, require_leave_to_build

APT_TIMEOUT_S = 900.0
ROOM_BYTES = 100 * 2**20
"""Free space for the lists of Debian's archive (50 MB) and a package. Short of it, apt hangs."""
KEPT_RECORD = "source.json"

ArchiveType = Literal["deb", "deb-src"]


class PrivateApt:
    """apt-get with its lists and cache in a directory that goes away afterwards.

    Attributes:
        work: The directory; what apt downloads lands in it.
    """

    def __init__(
        self, work: Path, log: Path, what: str, *, archives: ArchiveType, way_out: str
    ) -> None:
        """Set up the state under ``work``.

        Args:
            work: An empty directory.
            log: Receives apt's whole output.
            what: What is to be fetched, for messages.
            archives: ``deb`` for binary packages, ``deb-src`` for source packages.
            way_out: What to do without apt; the hint of errors.

        Raises:
            UserError: There is no apt, the system names no archive, or nothing is to be fetched.
        """
        require_leave_to_build(f"{what} is not here")
        if shutil.which("apt-get") is None:
            raise UserError(f"{what} needs apt, and there is no apt-get here", way_out)
        free = shutil.disk_usage(work).free
        if free < ROOM_BYTES:
            raise UserError(
                f"{work.parent} has {free // 2**20} MiB of free space, and fetching {what} needs "
                f"about {ROOM_BYTES // 2**20} MiB",
                "free some space there",
            )
        self.work = work
        self._log = log
        # apt drops to the user _apt for downloads and must be able to reach the place.
        work.chmod(0o755)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("", encoding="utf-8")
        self._options = _private_state(work, archives, way_out)

    def get(self, *arguments: str) -> bool:
        """Run apt-get; whether it succeeded."""
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
        """What apt-cache prints; empty where it fails."""
        return _apt_cache([*self._options, *arguments], self.work)

    def reason(self) -> str:
        """Return the line of apt's output that names the cause of its failure."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        # `update` runs first, so the first message is the cause and later ones follow from it. It
        # calls a failed download a warning. Other warnings are not causes.
        errors = [line[2:].strip() for line in lines if line.startswith(("E:", "W: Failed"))]
        return errors[0] if errors else (lines[-1] if lines else "no output")


def read_kept(
    folder: Path, what: str, say: Callable[[str], None]
) -> tuple[Path, dict[str, Any]] | None:
    """The tarball that `keep` put into ``folder`` and what is known of it, if both are intact."""
    record = folder / KEPT_RECORD
    try:
        facts: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        tarball, recorded = folder / facts["file"], facts["sha256"]
        if not isinstance(facts["version"], str):
            raise ValueError("its version is no text")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        say(f"{record} is not readable: fetching {what} again")
        return None
    if not tarball.is_file() or file_sha256(tarball) != recorded:
        say(f"{tarball} is not what was fetched (SHA-256 differs): fetching {what} again")
        return None
    return tarball, facts


def keep(folder: Path, work: Path, files: Iterable[Path], facts: dict[str, Any]) -> Path:
    """Put what was fetched into ``work`` in place as ``folder``; returns the tarball there.

    All at once, with the record of ``facts``: what is cut short is not a source.
    """
    staged = work / "staged"
    staged.mkdir()
    for path in files:
        path.rename(staged / path.name)
    record = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    (staged / KEPT_RECORD).write_text(record, encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    put_in_place(staged, folder)
    return folder / str(facts["file"])


def fetch_source_package(
    cache: Path, package: str, what: str, say: Callable[[str], None], *, way_out: str
) -> tuple[Path, dict[str, Any]]:
    """Fetch the upstream tarball of a source package and keep it as ``cache``.

    Debian's packaging is left out. apt checks the archive's signatures, and the tarball's SHA-256
    is that of the package's description.

    Args:
        cache: Where the tarball is kept, see :func:`keep`; the log goes beside it.
        package: The source package.
        what: What it holds, for messages.
        say: Receives a line for whatever takes time.
        way_out: What to do without apt; the hint of errors.

    Returns:
        The tarball and the facts of it that a manifest records.

    Raises:
        UserError: There is no apt, the system names no archive, or the package cannot be had.
    """
    cache.parent.mkdir(parents=True, exist_ok=True)
    log = cache.parent / "logs" / "source.log"
    say(f"fetching {what}'s source package with apt")
    with scratch_folder(cache.parent, ".fetch-") as work:
        apt = PrivateApt(work, log, f"{what}'s source package", archives="deb-src", way_out=way_out)
        # An index of some other archive may be missing (no sources there): what counts is
        # whether the package can be had afterwards.
        apt.get("update")
        if not apt.get("source", "--download-only", package):
            raise UserError(
                f"{what}'s source package could not be fetched: {apt.reason()}",
                f"apt's whole output: {log}\n{way_out}",
            )
        facts, files = _read_description(work, package, what, way_out)
        tarball = keep(cache, work, files, facts)
    say(f"{what} {facts['version']} (Debian {facts['package_version']}, SHA-256 {facts['sha256']})")
    return tarball, facts


def _read_description(
    work: Path, package: str, what: str, way_out: str
) -> tuple[dict[str, Any], list[Path]]:
    """Facts and files of the source package that was downloaded into ``work``."""
    descriptions = sorted(work.glob("*.dsc"))
    if len(descriptions) != 1:
        raise UserError(f"apt fetched no source package of {what}", way_out)
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
        raise UserError(f"{description.name} names no upstream tarball", way_out)
    sha256 = file_sha256(work / tarball)
    if sha256 != checksums[tarball]:
        raise UserError(
            f"{tarball}: SHA-256 {sha256} is not the one in {description.name}", way_out
        )
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


def offered_by_system(*arguments: str) -> str:
    """What apt-cache prints with the system's own lists; empty where there is none."""
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


def _private_state(work: Path, archives: ArchiveType, way_out: str) -> list[str]:
    """Set up an apt state under ``work``; returns the options that make apt use it.

    Raises:
        UserError: The system names no archive.
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
        raise UserError("apt has no package archive configured on this system", way_out)
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
        + ('APT::Get::Only-Source "true";\n' if archives == "deb-src" else ""),
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


def one_line_sources(text: str, archives: ArchiveType) -> str:
    """Lines of that type for every archive of a ``sources.list`` (see sources.list(5))."""
    # Whoever offers packages offers their sources; the converse does not hold.
    kind = "deb(?:-src)?" if archives == "deb-src" else "deb"
    lines = dict.fromkeys(
        f"{archives} {match[1].strip()}"
        for match in re.finditer(rf"^\s*{kind}\s+([^#\n]+)", text, re.MULTILINE)
        if "cdrom:" not in match[1]
    )
    return "".join(line + "\n" for line in lines)


def deb822_sources(text: str, archives: ArchiveType) -> str:
    """The stanzas of a ``.sources`` file for packages of that type alone (see sources.list(5))."""
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
    """Name (in lower case) and value of each field of a stanza (see deb822(5))."""
    for match in re.finditer(r"^([A-Za-z0-9-]+):(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE):
        yield match[1].lower(), match[2].strip()
