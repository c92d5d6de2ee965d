"""Reading the system's package archives with a private configuration of apt."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from onionlab.errors import UserError
from onionlab.programs.apt import PrivateApt, enable_sources


def test_source_packages_are_enabled() -> None:
    assert enable_sources(
        "# comment\n"
        "deb [arch=amd64] http://example.org/debian bookworm main # with a comment\n"
        "deb-src http://deb.debian.org/debian bookworm main\n"
        "#deb http://off.example.org/debian bookworm main\n"
        "  deb http://security.ubuntu.com/ubuntu noble-security main universe\n"
    ) == (
        "# comment\n"
        "deb-src [arch=amd64] http://example.org/debian bookworm main # with a comment\n"
        "deb-src http://deb.debian.org/debian bookworm main\n"
        "#deb http://off.example.org/debian bookworm main\n"
        "deb-src http://security.ubuntu.com/ubuntu noble-security main universe\n"
    )
    text = "Types: deb\nURIs: http://x\nSigned-By:\n mQINBF\n\nEnabled: no\ntypes: deb deb-src\n"
    assert enable_sources(text) == (
        "Types: deb-src\nURIs: http://x\nSigned-By:\n mQINBF\n\nEnabled: no\nTypes: deb-src\n"
    )


UNSANDBOXED = "W: Download is performed unsandboxed as root as file 'tor.dsc' couldn't be accessed"
FULL = "E: Failed to fetch http://deb/Sources  Error writing to file - write (28: No space left)"
OFFLINE = "W: Failed to fetch http://deb/InRelease  Could not resolve 'deb'"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ([UNSANDBOXED, FULL, "E: Unable to fetch some archives"], FULL),
        ([OFFLINE, "W: Some index files failed", "E: Unable to find a source package"], OFFLINE),
    ],
)
def test_the_cause_of_a_failure_is_named(tmp_path: Path, said: list[str], cause: str) -> None:
    apt = object.__new__(PrivateApt)
    apt._log = tmp_path / "log"
    apt._log.write_text("\n".join(["Get:1 http://deb bookworm InRelease", *said]))
    assert apt.reason() == cause[2:].strip()


def test_nothing_is_fetched_onto_a_disk_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The free space is checked first, because on a full disk apt would retry for many minutes."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=20 * 2**20))
    with pytest.raises(UserError, match=r"has 20 MiB of free space, and fetching Tor needs about"):
        PrivateApt(tmp_path / "work", tmp_path / "log", "Tor", sources=True, hint="")
