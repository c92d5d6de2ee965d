"""The files of a tornet as a host's programs see them: by paths from the host's own folder."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.formats.files import HOST_TEMPLATES, TEMPLATE
from onionlab.errors import UserError
from onionlab.yamlfile.units import show

CONF = "conf"
LARGEST_FILE_BYTES = 2**26
MOST_FILES = 1_000_000
ATLAS_ENDINGS = (".gml", ".gml.xz")
"""Atlases are cut, not kept."""
COMPLETE = "Copy the whole directory that `tornettools generate` wrote, or generate it again."
READABLE = "Give yourself the right to read it (chmod u+rX), or copy the directory again."


class FileError(Exception):
    """A file that a host asks for and cannot have, as a sentence."""


@dataclass(frozen=True)
class TornetFiles:
    """All files that a run may start from: path in the directory -> where its bytes are."""

    paths: Mapping[str, Path]

    def __contains__(self, path: str) -> bool:
        """Whether there is such a file."""
        return path in self.paths

    def of_host(self, host: str) -> str:
        """The folder of a host's own files, as it is before a run."""
        return f"{HOST_TEMPLATES}/{host}"

    def seen_by(self, host: str, name: str) -> str:
        """The path in the directory of a file that a host's program names.

        Programs run in shadow.data/hosts/HOST, which starts as a copy of the host's own files.

        Raises:
            FileError: it is no file of the directory.
        """
        if name.startswith(("/", "~")):
            raise FileError(
                f"{show(name)} is a file of the machine where the network was generated: "
                "copy it into the network's conf/, and name it by its path from the host's folder, "
                f"such as ../../../{CONF}/{posixpath.basename(name)}"
            )
        path = posixpath.normpath(posixpath.join(self.of_host(host), name))
        if path not in self.paths:
            raise FileError(f"{show(path)} is missing")
        return path

    def content(self, path: str) -> bytes:
        """A file's bytes.

        Raises:
            FileError: it is too large, or cannot be read.
        """
        try:
            with self.paths[path].open("rb") as stream:
                content = stream.read(LARGEST_FILE_BYTES + 1)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from None
        if len(content) > LARGEST_FILE_BYTES:
            raise FileError(f"{path} is larger than {LARGEST_FILE_BYTES // 2**20} MiB")
        return content

    def text(self, path: str) -> str:
        """A file's text.

        Raises:
            FileError: it is none in UTF-8, or cannot be had.
        """
        try:
            return self.content(path).decode()
        except UnicodeDecodeError:
            raise FileError(f"{path} is not text in UTF-8") from None

    def hashes(self) -> dict[str, str]:
        """SHA-256 of each file, by path.

        Raises:
            FileError: one is too large, or cannot be read.
        """
        return {path: hashlib.sha256(self.content(path)).hexdigest() for path in sorted(self.paths)}


def find_files(directory: Path, shown: str) -> TornetFiles:
    """All files of conf/ and shadow.data.template/, without atlases.

    shown: the directory as messages name it.

    Raises:
        UserError: a folder is missing or cannot be read, or holds what cannot be copied.
    """
    found: dict[str, Path] = {}
    for folder in (CONF, TEMPLATE):
        for path in _walk(directory / folder):
            relative = path.relative_to(directory).as_posix()
            try:
                relative.encode()
            except UnicodeEncodeError:
                raise UserError(
                    f"{shown}: the name of a file is not text: {relative!a}", "Rename or remove it."
                ) from None
            if relative.startswith(f"{CONF}/") and relative.endswith(ATLAS_ENDINGS):
                continue
            _require_plain(path, directory, f"{shown}/{relative}")
            found[relative] = path
            if len(found) > MOST_FILES:
                raise UserError(
                    f"{shown} holds more than {MOST_FILES} files",
                    f"Remove what `tornettools generate` did not write to {CONF}/ and {TEMPLATE}/.",
                )
    return TornetFiles(found)


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}", READABLE)

    # A link to a folder is listed among the folders, and not entered.
    for parent, folders, names in os.walk(folder, onerror=refuse):
        yield from (Path(parent, name) for name in names)
        yield from (path for path in (Path(parent, name) for name in folders) if path.is_symlink())


def _require_plain(path: Path, directory: Path, shown: str) -> None:
    """Raises UserError for what is neither a file nor a link to one inside of the directory."""
    try:
        target = path.resolve(strict=True)
        is_file = stat.S_ISREG(target.stat().st_mode)
    except (OSError, RuntimeError):
        raise UserError(
            f"{shown} is a link that leads nowhere", f"Remove it if no host reads it. {COMPLETE}"
        ) from None
    if not is_file or not target.is_relative_to(directory.resolve()):
        what, hint = "not a file", "Remove it."
        if path.is_symlink():
            what = "a link out of the directory"
            hint = "Replace it by a copy of the file that it leads to."
        raise UserError(f"{shown} is {what}, and cannot be kept", hint)
