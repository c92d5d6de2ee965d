"""The files of a tornet (a directory that ``tornettools generate`` wrote).

Programs of a host refer to these files by paths relative to the host's folder.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.formats.files import HOST_TEMPLATES, TEMPLATE
from onionlab.errors import UserError
from onionlab.yamlfile.units import show

CONF = "conf"
MAX_FILE_BYTES = 2**26
ATLAS_ENDINGS = (".gml", ".gml.xz")
"""The endings of names of atlases, which are tornettools' graphs of the Internet. An import stores
only the part of an atlas that the network uses."""
READABLE = "Make it readable (chmod u+rX), or copy the directory again."
COMPLETE = "Copy the whole directory that `tornettools generate` wrote, or generate it again."


class FileError(Exception):
    """A file that a host needs is missing or unusable; the message is a sentence."""


@dataclass(frozen=True)
class TornetFiles:
    """All files that a run may start from.

    paths: path relative to the tornet's directory -> path from which to read the file.
    """

    paths: Mapping[str, Path]

    def host_folder(self, host: str) -> str:
        """Return the folder with a host's own files. Runs start from a copy of this folder."""
        return f"{HOST_TEMPLATES}/{host}"

    def resolve(self, host: str, name: str) -> str:
        """Return the path, relative to the tornet, of a file to which a host's program refers.

        Programs run in shadow.data/hosts/HOST, which starts as a copy of the host's own files.

        Raises:
            FileError: the directory does not contain the file.
        """
        if name.startswith(("/", "~")):
            raise FileError(
                f"{show(name)} is a file on the machine where the network was generated: "
                "copy it into the network's conf/, and use its path relative to the host's folder, "
                f"such as ../../../{CONF}/{posixpath.basename(name)}"
            )
        path = posixpath.normpath(posixpath.join(self.host_folder(host), name))
        if path not in self.paths:
            raise FileError(f"{show(path)} is missing")
        return path

    def content(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FileError: the file is too large or cannot be read.
        """
        try:
            with self.paths[path].open("rb") as stream:
                content = stream.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from None
        if len(content) > MAX_FILE_BYTES:
            raise FileError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB")
        return content

    def text(self, path: str) -> str:
        """Return a file's text.

        Raises:
            FileError: the file is not in UTF-8, is too large, or cannot be read.
        """
        try:
            return self.content(path).decode()
        except UnicodeDecodeError:
            raise FileError(f"{path} is not text in UTF-8") from None

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each file, by its path.

        Raises:
            FileError: a file is too large or cannot be read.
        """
        return {path: hashlib.sha256(self.content(path)).hexdigest() for path in sorted(self.paths)}


def find_files(directory: Path) -> TornetFiles:
    """Return all files of conf/ and shadow.data.template/ except atlases.

    Raises:
        UserError: a folder is missing or cannot be read, or contains something that cannot be
            copied.
    """
    found: dict[str, Path] = {}
    for folder in (CONF, TEMPLATE):
        for path in _walk(directory / folder):
            relative = path.relative_to(directory).as_posix()
            try:
                relative.encode()
            except UnicodeEncodeError:
                raise UserError(
                    f"{directory}: the name of a file is not text: {relative!a}",
                    "Rename or remove it.",
                ) from None
            if relative.startswith(f"{CONF}/") and relative.endswith(ATLAS_ENDINGS):
                continue
            _require_plain(path, directory)
            found[relative] = path
    return TornetFiles(found)


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}", READABLE)

    # os.walk lists a link to a folder among the folders, and does not follow the link. Yield such a
    # link, so that `_require_plain` rejects it.
    for parent, folders, names in os.walk(folder, onerror=refuse):
        paths = [Path(parent, name) for name in (*names, *folders)]
        yield from (path for path in paths if path.is_symlink() or not path.is_dir())


def _require_plain(path: Path, directory: Path) -> None:
    """Raise UserError if the path is neither a file of the directory nor a link to such a file."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        target = None
    if target is None or not target.is_file() or not target.is_relative_to(directory.resolve()):
        raise UserError(
            f"{path} is neither a file nor a link to a file of the directory",
            f"Replace a link with a copy of its target, or remove {path} if no host reads it.",
        )
