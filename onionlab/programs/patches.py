"""Read patch files, and patch series (folders of patches that are applied together)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from onionlab.errors import UserError

_HUNK = re.compile(rb"^@@ -\d", re.MULTILINE)
_FILE = re.compile(rb"^(?=diff --git )", re.MULTILINE)


@dataclass(frozen=True)
class Patch:
    """A patch file and its content. The content may be a part of the file, see `without`."""

    path: Path
    content: bytes

    @property
    def sha256(self) -> str:
        """SHA-256 of ``content``, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    def without(self, folder: str) -> Patch | None:
        """Return the patch without changes of files in ``folder``; None if nothing else is left."""
        head, *parts = _FILE.split(self.content)
        kept = [one for one in parts if f" b/{folder}/".encode() not in one.partition(b"\n")[0]]
        if len(kept) == len(parts):
            return self
        return Patch(self.path, head + b"".join(kept)) if kept else None

    @classmethod
    def read(cls, path: Path) -> Patch:
        """Read a patch file.

        Raises UserError if it has no hunk. The program `patch` accepts such a file silently.
        """
        content = path.read_bytes()
        if _HUNK.search(content) is None:
            raise UserError(
                f"{path.parent.name}/{path.name} has no hunk",
                "Write the patch again, for instance with `git format-patch`, or remove it.",
            )
        return cls(path, content)


@dataclass(frozen=True)
class Series:
    """A named list of patches, in the order in which they are applied."""

    name: str
    patches: tuple[Patch, ...]

    @property
    def provenance(self) -> list[dict[str, str]]:
        """Name and SHA-256 of each patch, as the records of builds contain them."""
        return [{"name": patch.path.name, "sha256": patch.sha256} for patch in self.patches]


def load_series(root: Path, name: str, collection: str) -> Series:
    """Return the patches of one series, in the order of its file ``series``.

    Without such a file, the patches are sorted by name. A series with a name such as ``a+b`` has
    the patches of ``a``, followed by the patches of ``b``. ``collection`` is the folder below
    ``root`` that contains the folders of all series. Raises UserError if the folder or a patch is
    missing, ``series`` does not list each patch once, or a patch has no hunk.
    """
    if "+" in name:
        parts = [load_series(root, part, collection) for part in name.split("+")]
        return Series(name, tuple(patch for part in parts for patch in part.patches))
    folder = root / f"{collection}/{name}"
    if not folder.is_dir():
        raise UserError(f"patch series {name}: folder {collection}/{name} not found")
    present = sorted(path.name for path in folder.glob("*.patch"))
    order = folder / "series"
    if order.is_file():
        lines = (line.split("#", 1)[0].strip() for line in order.read_text("utf-8").splitlines())
        listed = [line for line in lines if line]
        for problem, names in (
            ("names a missing patch", sorted(set(listed) - set(present))),
            ("leaves out a patch", sorted(set(present) - set(listed))),
            ("names a patch twice", sorted({one for one in listed if listed.count(one) > 1})),
        ):
            if names:
                raise UserError(f"patch series {name}: its file `series` {problem}: {names[0]}")
    else:
        listed = present
    if not listed:
        raise UserError(f"patch series {name}: {collection}/{name} contains no *.patch")
    return Series(name, tuple(Patch.read(folder / entry) for entry in listed))
