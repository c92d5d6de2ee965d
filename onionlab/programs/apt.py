"""Fetch Debian packages with apt, using a private apt state.

A private directory contains apt's package lists and cache, and copies of the system's source lists
that enable only source packages. The system's configuration is not modified, and root is not
needed. apt verifies the archive's signatures and checksums as usual.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from analysis.formats.durable import put_in_place
from analysis.formats.scratch import scratch_folder
from onionlab.errors import UserError
from onionlab.programs.building import ensure_building_allowed, file_sha256

LOG = logging.getLogger(__name__)
APT_TIMEOUT_S = 900.0
ROOM_BYTES = 100 * 2**20
"""Free space for the lists of Debian's archive (50 MB) and a package. apt hangs with less."""
RECORD_FILE = "source.json"
# The first line removes the system's hooks (APT::Update::Post-Invoke...), which are meant for the
# system's own lists.
CONFIGURATION = """\
#clear APT::Update;
Dir::State::Lists "{work}/lists";
Dir::Cache "{work}/cache";
Acquire::Languages "none";
Acquire::Retries "2";
"""
SOURCES_CONFIGURATION = """\
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{work}/sources";
APT::Get::Only-Source "true";
"""


class PrivateApt:
    """apt-get with its lists, cache and downloads in a temporary directory."""

    def __init__(self, work: Path, log: Path, what: str, *, sources: bool, hint: str) -> None:
        """Create apt's configuration and empty lists and cache in ``work``.

        Args:
            work: An empty directory.
            log: Receives apt's whole output.
            what: The thing to fetch, for messages.
            sources: Enable source packages.
            hint: How to proceed without apt; the hint of errors.

        Raises:
            UserError: apt is missing, the disk is full, or fetching is not allowed.
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
        self._work, self._log, self._hint = work, log, hint
        # For downloads, apt changes to the user _apt, who needs access to this directory.
        work.chmod(0o755)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("", encoding="utf-8")
        for name in ("sources", "lists/partial", "cache/archives/partial"):
            (work / name).mkdir(parents=True)
        configuration = CONFIGURATION
        if sources:
            configuration += SOURCES_CONFIGURATION
            for index, path in enumerate(_system_source_files()):
                text = enable_sources(path.read_text(encoding="utf-8", errors="replace"))
                (work / f"sources/{index:02}{path.suffix}").write_text(text, encoding="utf-8")
        file = work / "apt.conf"
        file.write_text(configuration.format(work=work), encoding="utf-8")
        self._options = ["-q", "-c", str(file)]

    def get(self, *arguments: str) -> bool:
        """Run apt-get. Return True if it succeeded."""
        with self._log.open("a", encoding="utf-8") as stream:
            try:
                result = subprocess.run(
                    ["apt-get", *self._options, *arguments],
                    cwd=self._work,
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
        return query_system_apt(*self._options, *arguments)

    def error(self, message: str) -> UserError:
        """Return an error whose hint names the log."""
        return UserError(message, f"apt's whole output: {self._log}\n{self._hint}")

    def reason(self) -> str:
        """Return the line of apt's output that names the cause of its failure."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        # `update` runs first, so the first message is the cause and later ones follow from it. apt
        # reports a failed download as a warning; other warnings are not causes.
        errors = [line[2:].strip() for line in lines if line.startswith(("E:", "W: Failed"))]
        return errors[0] if errors else (lines[-1] if lines else "no output")


def read_fetched(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the tarball and the record in ``folder``, or None unless both are intact."""
    try:
        facts: dict[str, Any] = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
        tarball = folder / facts["file"]
        intact = isinstance(facts["version"], str) and file_sha256(tarball) == facts["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (tarball, facts) if intact else None


def store_fetched(folder: Path, work: Path, files: Iterable[Path], facts: dict[str, Any]) -> Path:
    """Move fetched files to ``folder``, with a record of ``facts``. Return the tarball's new path.

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
    cache: Path, package: str, what: str, *, hint: str, version: str | None = None
) -> tuple[Path, dict[str, Any]]:
    """Fetch the upstream tarball of a source package and store it in the folder ``cache``.

    Debian's packaging is not used. apt compares the tarball with the signed index of the archive.

    Args:
        cache: The folder for the tarball, see :func:`store_fetched`; the log goes to its parent.
        package: The source package.
        what: The name of the program, for messages.
        hint: How to proceed without apt; the hint of errors.
        version: The upstream version; by default the newest version.

    Returns:
        The tarball and the facts about it that a manifest records.

    Raises:
        UserError: apt is missing, the disk is full, fetching is not allowed, or no archive that the
            system configures has the package.
    """
    cache.parent.mkdir(parents=True, exist_ok=True)
    log = cache.parent / "logs" / "source.log"
    LOG.info("fetching %s's source package with apt", what)
    with scratch_folder(cache.parent, ".fetch-") as work:
        apt = PrivateApt(work, log, f"{what}'s source package", sources=True, hint=hint)
        # The result is ignored: an unrelated archive may lack an index of source packages. If the
        # archive with this package lacks its index, the following commands fail.
        apt.get("update")
        wanted = package if version is None else _with_version(apt, package, version, what, hint)
        if not apt.get("source", "--download-only", wanted):
            raise apt.error(f"{what}'s source package could not be fetched: {apt.reason()}")
        facts, files = _read_description(work, package, what, hint)
        tarball = store_fetched(cache, work, files, facts)
    shown = (facts[key] for key in ("version", "package_version", "sha256"))
    LOG.info("%s %s (Debian %s, SHA-256 %s)", what, *shown)
    return tarball, facts


def _with_version(apt: PrivateApt, package: str, version: str, what: str, hint: str) -> str:
    """Return PACKAGE=VERSION, apt's name of a package with the upstream version ``version``.

    Raises UserError if there is no such package.
    """
    shown = re.findall(r"^Version: (\S+)$", apt.cache("showsrc", package), re.MULTILINE)
    for one in shown:
        if _upstream(one) == version:
            return f"{package}={one}"
    known = ", ".join(dict.fromkeys(map(_upstream, shown))) or "none"
    raise UserError(
        f"apt's archives have no source package of {what} {version}; versions there: {known}", hint
    )


def _upstream(package_version: str) -> str:
    """Return the upstream version in a package's version, without epoch and Debian revision."""
    return package_version.split(":", 1)[-1].rsplit("-", 1)[0]


def _read_description(
    work: Path, package: str, what: str, hint: str
) -> tuple[dict[str, Any], list[Path]]:
    """Return facts and files of the source package that was downloaded into ``work``."""
    descriptions = list(work.glob("*.dsc"))
    # A tarball's upstream signature has the same name with the suffix .asc added.
    tarballs = [path for path in work.glob("*.orig.tar.*") if path.suffix != ".asc"]
    text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in descriptions)
    versions = re.findall(r"^Version: (\S+)$", text, re.MULTILINE)
    if len(descriptions) != 1 or len(tarballs) != 1 or not versions:
        raise UserError(f"apt fetched no upstream tarball of {what}", hint)
    facts = {
        "kind": "debian",
        "package": package,
        "package_version": versions[0],
        "version": _upstream(versions[0]),
        "file": tarballs[0].name,
        "sha256": file_sha256(tarballs[0]),
    }
    return facts, [*descriptions, *tarballs]


def query_system_apt(*arguments: str) -> str:
    """Return the output of apt-cache, or an empty string if it fails.

    apt-cache uses the system's own lists unless ``arguments`` specify others.
    """
    try:
        result = subprocess.run(
            ["apt-cache", *arguments],
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


def _system_source_files() -> list[Path]:
    """Return the files that configure this system's package archives."""
    keys = ("LIST", "Dir::Etc::SourceList/f", "PARTS", "Dir::Etc::SourceParts/d")
    answer = subprocess.run(
        ["apt-config", "shell", *keys], capture_output=True, text=True, check=False
    ).stdout
    named = dict(word.split("=", 1) for word in shlex.split(answer) if "=" in word)
    files = [Path(named.get("LIST", "/etc/apt/sources.list"))]
    files += sorted(Path(named.get("PARTS", "/etc/apt/sources.list.d")).glob("*"))
    return [path for path in files if path.is_file() and path.suffix in (".list", ".sources")]


def enable_sources(text: str) -> str:
    """Return the text of a sources.list(5) file, in either format, with source packages only."""
    text = re.sub(r"^types:.*$", "Types: deb-src", text, flags=re.IGNORECASE | re.MULTILINE)
    return re.sub(r"^\s*deb(-src)?\s", "deb-src ", text, flags=re.MULTILINE)
