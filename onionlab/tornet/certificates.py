"""Parse certificates of authorities and relays, and check secret keys."""

from __future__ import annotations

import calendar
import re
import time

_ED25519_HEAD = b"== ed25519v1-cert: type4 ==".ljust(32, b"\0")
"""The head of Tor's files with ed25519 certificates. crypto_write_tagged_contents_to_file() in
crypto_format.c writes this head."""
_SECRET_HEAD = b"== ed25519v1-secret: type0 ==".ljust(32, b"\0")
_SECRET_BYTES = 96
# Tor ends its own files with a NUL, but tor-gencert does not. The pattern matches both.
_RSA_SECRET = re.compile(
    rb"-----BEGIN ((?:RSA )?PRIVATE KEY)-----\n[A-Za-z0-9+/=\n]+\n-----END \1-----[\s\0]*"
)
_LAST_LINE = "-----END SIGNATURE-----"
_MAX_AGE_S = 365 * 24 * 3600


def read_authority_certificate(text: str) -> tuple[str, int, int]:
    """Read keys/authority_certificate (dir-spec, section 3.1).

    Returns:
        The identity (v3ident, 40 hexadecimal digits in upper case), and the time from which and the
        time until which Tor accepts the certificate, in seconds since 1970. Tor rejects a
        certificate that was published more than a year ago.

    Raises:
        ValueError: the text is not a certificate; the message states what is missing.
    """

    def line(keyword: str, pattern: str) -> str:
        found = re.search(rf"^{keyword} ({pattern})$", text, re.MULTILINE | re.ASCII)
        if found is None:
            raise ValueError(f"line {keyword} is missing")
        return found[1]

    if _LAST_LINE not in text.splitlines():
        raise ValueError(f"line {_LAST_LINE} is missing")
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    identity = line("fingerprint", "[0-9A-Fa-f]{40}").upper()
    published_unix_s, expires_unix_s = (
        calendar.timegm(time.strptime(line(f"dir-key-{event}", when), "%Y-%m-%d %H:%M:%S"))
        for event in ("published", "expires")
    )
    return identity, published_unix_s, min(expires_unix_s, published_unix_s + _MAX_AGE_S)


def signing_key_expires_unix_s(content: bytes) -> int:
    """Return when a keys/ed25519_signing_cert expires, in seconds since 1970 (cert-spec, 2.1).

    Raises:
        ValueError: the content is not such a certificate.
    """
    if not content.startswith(_ED25519_HEAD) or len(content) < len(_ED25519_HEAD) + 6:
        raise ValueError("not a certificate of a signing key")
    return 3600 * int.from_bytes(content[len(_ED25519_HEAD) + 2 : len(_ED25519_HEAD) + 6], "big")


def is_rsa_secret(content: bytes) -> bool:
    """Return whether a file's content is a complete RSA key such as keys/secret_id_key."""
    return _RSA_SECRET.fullmatch(content) is not None


def is_ed25519_secret(content: bytes) -> bool:
    """Return whether a file's content is a complete secret identity key of a relay or service."""
    return content.startswith(_SECRET_HEAD) and len(content) == _SECRET_BYTES
