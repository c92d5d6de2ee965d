"""What a wheel holds besides the packages: experiments, configurations and patches.

In a checkout they are read where they stand (onionlab/paths.py); all else is in pyproject.toml.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("configs", "experiments", "libtorrent-patches", "requirements.lock", "tor-patches")


def shipped_files() -> list[Path]:
    """All files to carry along, relative to the checkout."""
    found = [Path(name) for name in SHIPPED if Path(name).is_file()]
    found += [path for name in SHIPPED for path in sorted(Path(name).rglob("*")) if path.is_file()]
    return found


class BuildWithShare(build_py):
    """Copies what is shipped to onionlab/share of a wheel; an editable installation has no need."""

    def run(self) -> None:
        """Make the packages, and put what is shipped beside them."""
        super().run()
        if not self.editable_mode:
            for path in shipped_files():
                target = Path(self.build_lib) / "onionlab" / "share" / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)

    def get_source_files(self) -> list[str]:
        """What an archive of the source has to hold, so that a wheel can be made from it."""
        return [*super().get_source_files(), *map(str, shipped_files())]


setup(cmdclass={"build_py": BuildWithShare})
