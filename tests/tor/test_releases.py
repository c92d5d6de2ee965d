"""A shipped series applies to a release of Tor if and only if tor-patches/README.md says so.

The source is the package that a build fetched, if that package is of the release. Otherwise it is
the newest tag of the release in the git repository that the variable TOR_GIT names.
"""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path

import pytest
from tor_repository import git

from onionlab.programs.building import patch_problem
from onionlab.programs.git import find_commit, read_committed
from onionlab.programs.sources import find_source
from onionlab.programs.tor.build_trees import tor_directory
from onionlab.programs.tor.tor_source import TOR
from onionlab.programs.tor.variants import tor_series

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "tor-patches/README.md"


def listed_releases() -> list[tuple[str, str, bool]]:
    """Return (series, release, whether the series applies to the release) from README's table."""
    head, *rows = re.findall(
        r"^\| (Series|`[a-z-]+`) \|(.* \|.* \|.*)\|$", README.read_text(), re.M
    )
    releases = [cell.strip() for cell in head[1].split("|")]
    return [
        (series.strip("`"), release, cell.strip() == "yes")
        for series, cells in rows
        for release, cell in zip(releases, cells.split("|"), strict=True)
    ]


def read_release(release: str, names: set[str]) -> dict[str, str]:
    """Return path -> text of those files in ``names`` that the source of a release has."""
    source = find_source(TOR, tor_directory(REPOSITORY) / "source", "")
    if source is not None and (source.version or "").startswith(f"{release}."):
        with tarfile.open(source.path) as tarball:
            return {
                name: stream.read().decode()
                for member in tarball
                if (name := member.name.partition("/")[2]) in names
                and (stream := tarball.extractfile(member))
            }
    if not os.environ.get("TOR_GIT"):
        pytest.skip(f"no source of Tor {release}: TOR_GIT does not name a repository")
    repository = Path(os.environ["TOR_GIT"])
    tags = git(repository, "tag", "--sort=-version:refname", "-l", f"tor-{release}.*").split()
    if not tags:
        pytest.skip(f"{repository} has no tag of Tor {release}")
    commit = find_commit(repository, tags[0])
    return {name: text for name in names if (text := read_committed(commit, name))}


@pytest.mark.parametrize(("series", "release", "applies"), listed_releases())
def test_a_series_applies_to_a_release(
    tmp_path: Path, series: str, release: str, applies: bool
) -> None:
    patches = tor_series(REPOSITORY, series, tests=True).patches
    names = {
        name.decode()
        for patch in patches
        for name in re.findall(rb"^diff --git a/(\S+)", patch.content, re.M)
    }
    for name, text in read_release(release, names).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    problems = [patch_problem(tmp_path, patch) for patch in patches]
    assert (not any(problems)) is applies, problems
