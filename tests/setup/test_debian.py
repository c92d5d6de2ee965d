"""The system's package archives, as a private apt gets them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from onionlab.errors import UserError
from onionlab.programs.apt import PrivateApt, deb822_sources, one_line_sources


def test_one_line_sources() -> None:
    text = """\
# comment
deb http://deb.debian.org/debian bookworm main # with a comment
deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://example.org/debian bookworm main
deb-src http://deb.debian.org/debian bookworm main
#deb http://off.example.org/debian bookworm main
deb cdrom:[Debian GNU/Linux 12]/ bookworm main
  deb http://security.ubuntu.com/ubuntu noble-security main universe
"""
    assert one_line_sources(text, "deb-src").splitlines() == [
        "deb-src http://deb.debian.org/debian bookworm main",
        "deb-src [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://example.org/debian "
        "bookworm main",
        "deb-src http://security.ubuntu.com/ubuntu noble-security main universe",
    ]


def test_deb822_sources() -> None:
    text = """\
Types: deb
# a comment inside
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----

types: deb deb-src
URIs: http://deb.debian.org/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example.org/debian
Suites: bookworm
Components: main
"""
    assert (
        deb822_sources(text, "deb-src")
        == """\
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb-src
URIs: http://deb.debian.org/debian-security
Suites: bookworm-security
Components: main
"""
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "Enabled: no\nTypes: deb\nURIs: http://x\n"])
def test_no_sources(text: str) -> None:
    assert deb822_sources(text, "deb-src") == ""
    assert one_line_sources(text, "deb-src") == ""


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
    """apt retries for many minutes there."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=20 * 2**20))
    with pytest.raises(UserError, match=r"has 20 MiB of free space, and fetching Tor needs about"):
        PrivateApt(tmp_path / "work", tmp_path / "log", "Tor", archives="deb-src", hint="")
