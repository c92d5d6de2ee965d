"""The system's package archives, as a private apt gets them."""

from __future__ import annotations

import pytest

from onionlab.programs.apt import deb822_sources, one_line_sources


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
