"""Certificates of authorities and relays: whose they are, when they are valid; and their keys."""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import dataclass

_ED25519_HEAD = b"== ed25519v1-cert: type4 ==".ljust(32, b"\0")
"""Of a file of Tor: src/lib/crypt_ops/crypto_format.c, crypto_write_tagged_contents_to_file()."""
_SECRET_HEAD = b"== ed25519v1-secret: type0 ==".ljust(32, b"\0")
_SECRET_BYTES = 96
# Tor ends its own with a NUL, tor-gencert without.
_RSA_SECRET = re.compile(
    rb"-----BEGIN ((?:RSA )?PRIVATE KEY)-----\n[A-Za-z0-9+/=\n]+\n-----END \1-----[\s\0]*"
)
_LAST_LINE = "-----END SIGNATURE-----"
_MOST_AGE_S = 365 * 24 * 3600


@dataclass(frozen=True)
class AuthorityCertificate:
    """A key certificate (dir-spec, section 3.1); times in seconds since 1970.

    identity: v3ident, 40 hexadecimal digits in upper case.
    """

    identity: str
    published_unix_s: int
    expires_unix_s: int

    def holds(self, begin_unix_s: float, end_unix_s: float) -> bool:
        """Whether Tor takes it all the time: it refuses one of over a year's age, too."""
        until_s = min(self.expires_unix_s, self.published_unix_s + _MOST_AGE_S)
        return self.published_unix_s <= begin_unix_s and end_unix_s < until_s


def read_authority_certificate(text: str) -> AuthorityCertificate:
    """Read keys/authority_certificate.

    Raises:
        ValueError: it is none; says what is missing.
    """

    def line(keyword: str, pattern: str) -> str:
        found = re.search(rf"^{keyword} ({pattern})$", text, re.MULTILINE | re.ASCII)
        if found is None:
            raise ValueError(f"no line {keyword}")
        return found[1]

    if _LAST_LINE not in text.splitlines():
        raise ValueError(f"no line {_LAST_LINE}")
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    return AuthorityCertificate(
        identity=line("fingerprint", "[0-9A-Fa-f]{40}").upper(),
        published_unix_s=_unix_s(line("dir-key-published", when)),
        expires_unix_s=_unix_s(line("dir-key-expires", when)),
    )


def _unix_s(text: str) -> int:
    return calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


def signing_key_expires_unix_s(content: bytes) -> int:
    """When a relay's keys/ed25519_signing_cert expires (cert-spec, section 2.1: in whole hours).

    Raises:
        ValueError: it is no such certificate.
    """
    if not content.startswith(_ED25519_HEAD) or len(content) < len(_ED25519_HEAD) + 6:
        raise ValueError("no certificate of a signing key")
    return 3600 * int.from_bytes(content[len(_ED25519_HEAD) + 2 : len(_ED25519_HEAD) + 6], "big")


def is_rsa_secret(content: bytes) -> bool:
    """Whether it is a whole RSA key, as keys/secret_id_key and keys/authority_signing_key are."""
    return _RSA_SECRET.fullmatch(content) is not None


def is_ed25519_secret(content: bytes) -> bool:
    """Whether it is a whole secret key, as those of relays' and onion services' identities are."""
    return content.startswith(_SECRET_HEAD) and len(content) == _SECRET_BYTES
