"""Generate Tor's keys from a seed.

A relay's identity influences the hash ring of directories, the order of relays in a consensus, and
ties in path selection. Keys are therefore generated here instead of by `tor --list-fingerprint` and
`tor-gencert`, so that a seed results in the same network for every variant and on every machine.
They are keys of simulated relays and protect nothing.

File formats: Tor's dir-spec (key certificates), src/lib/crypt_ops/crypto_rsa.c (PEM, signatures
without DigestInfo) and src/lib/crypt_ops/crypto_format.c (ed25519 files).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from Crypto.PublicKey import ECC, RSA

from onionlab.network.draws import ByteStream, draw_bytes

RELAY_RSA_BITS = 1024  # Tor's PK_BYTES: a relay's RSA identity has exactly this length.
AUTHORITY_SIGNING_RSA_BITS = 2048
AUTHORITY_IDENTITY_RSA_BITS = 3072

# Tor rejects an authority certificate that is more than a year old or not yet valid at the
# simulated start, 2000-01-01 00:00:00.
CERTIFICATE_PUBLISHED = "1999-12-31 00:00:00"
CERTIFICATE_EXPIRES = "2000-12-31 00:00:00"

_ONION_VERSION = b"\x03"


@dataclass(frozen=True)
class RelayKeys:
    """A relay's identity. `files`: keyed by name in its keys/ directory."""

    fingerprint: str
    files: dict[str, bytes]


@dataclass(frozen=True)
class OnionServiceKeys:
    """An onion service's identity. `files`: keyed by name in its HiddenServiceDir.

    address: the complete address that clients request, including `.onion`.
    """

    address: str
    files: dict[str, bytes]


@dataclass(frozen=True)
class AuthorityKeys:
    """A directory authority's identity: the keys of a relay and a v3 certificate."""

    fingerprint: str
    v3_identity: str
    files: dict[str, bytes]


def make_relay_keys(seed: int, name: str) -> RelayKeys:
    """Generate the identity keys of one relay.

    Tor generates the medium-term keys itself when it starts.
    """
    rsa = _make_rsa(RELAY_RSA_BITS, seed, "relay identity", name)
    return RelayKeys(
        fingerprint=_fingerprint(rsa),
        files={
            "secret_id_key": _private_pem(rsa),
            "ed25519_master_id_secret_key": _make_ed25519_secret_file(seed, name),
        },
    )


def make_onion_service_keys(seed: int, name: str) -> OnionServiceKeys:
    """Generate the identity of an onion service (rend-spec-v3, section 6: address encoding)."""
    secret = draw_bytes(32, seed, "onion service identity", name)
    public = ECC.construct(curve="Ed25519", seed=secret).public_key().export_key(format="raw")
    address = onion_address(public)
    return OnionServiceKeys(
        address=address,
        files={
            "hs_ed25519_secret_key": _ed25519_secret_file(secret),
            "hs_ed25519_public_key": b"== ed25519v1-public: type0 ==".ljust(32, b"\0") + public,
            "hostname": f"{address}\n".encode(),
        },
    )


def onion_address(public: bytes) -> str:
    """Return the address of the onion service with this ed25519 public key."""
    checksum = hashlib.sha3_256(b".onion checksum" + public + _ONION_VERSION).digest()[:2]
    label = base64.b32encode(public + checksum + _ONION_VERSION).decode().lower()
    return f"{label}.onion"


def make_authority_keys(
    seed: int,
    name: str,
    *,
    published: str = CERTIFICATE_PUBLISHED,
    expires: str = CERTIFICATE_EXPIRES,
) -> AuthorityKeys:
    """Generate the keys and the certificate of one directory authority (dir-spec, section 3.1)."""
    relay = make_relay_keys(seed, name)
    identity = _make_rsa(AUTHORITY_IDENTITY_RSA_BITS, seed, "authority identity", name)
    signing = _make_rsa(AUTHORITY_SIGNING_RSA_BITS, seed, "authority signing", name)
    v3_identity = _fingerprint(identity)
    cross = _sign_digest(signing, hashlib.sha1(_public_der(identity)).digest())
    body = (
        "dir-key-certificate-version 3\n"
        f"fingerprint {v3_identity}\n"
        f"dir-key-published {published}\n"
        f"dir-key-expires {expires}\n"
        f"dir-identity-key\n{_public_pem(identity)}"
        f"dir-signing-key\n{_public_pem(signing)}"
        f"dir-key-crosscert\n{_armour('ID SIGNATURE', cross)}"
        "dir-key-certification\n"
    )
    certification = _sign_digest(identity, hashlib.sha1(body.encode()).digest())
    certificate = body + _armour("SIGNATURE", certification)
    return AuthorityKeys(
        fingerprint=relay.fingerprint,
        v3_identity=v3_identity,
        files=relay.files
        | {
            "authority_certificate": certificate.encode(),
            "authority_identity_key": _private_pem(identity),
            "authority_signing_key": _private_pem(signing),
        },
    )


def _make_rsa(bits: int, seed: int, *label: str) -> RSA.RsaKey:
    stream = ByteStream(seed, "rsa", str(bits), *label)
    return RSA.generate(bits, randfunc=stream.read, e=65537)


def _make_ed25519_secret_file(seed: int, name: str) -> bytes:
    return _ed25519_secret_file(draw_bytes(32, seed, "ed25519 identity", name))


def _ed25519_secret_file(secret: bytes) -> bytes:
    """Return Tor's file of an expanded ed25519 secret key: a 32-byte tag, then 64 bytes."""
    expanded = bytearray(hashlib.sha512(secret).digest())
    expanded[0] &= 248
    expanded[31] &= 63
    expanded[31] |= 64
    return b"== ed25519v1-secret: type0 ==".ljust(32, b"\0") + bytes(expanded)


def _public_der(key: RSA.RsaKey) -> bytes:
    """Return the PKCS#1 RSAPublicKey structure, which Tor hashes for fingerprints."""
    return _der_sequence(_der_integer(key.n) + _der_integer(key.e))


def _der_sequence(content: bytes) -> bytes:
    return b"\x30" + _der_length(len(content)) + content


def _der_integer(value: int) -> bytes:
    content = value.to_bytes(value.bit_length() // 8 + 1, "big")
    return b"\x02" + _der_length(len(content)) + content


def _der_length(length: int) -> bytes:
    if length < 128:
        return bytes([length])
    content = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([128 + len(content)]) + content


def _fingerprint(key: RSA.RsaKey) -> str:
    return hashlib.sha1(_public_der(key)).hexdigest().upper()


def _private_pem(key: RSA.RsaKey) -> bytes:
    return key.export_key("PEM", pkcs=1) + b"\n"


def _public_pem(key: RSA.RsaKey) -> str:
    return _armour("RSA PUBLIC KEY", _public_der(key))


def _armour(kind: str, content: bytes) -> str:
    text = base64.b64encode(content).decode()
    lines = "".join(f"{text[i : i + 64]}\n" for i in range(0, len(text), 64))
    return f"-----BEGIN {kind}-----\n{lines}-----END {kind}-----\n"


def _sign_digest(key: RSA.RsaKey, digest: bytes) -> bytes:
    """Sign as Tor does: PKCS#1 v1.5 padding (type 1) around the bare digest."""
    size = (key.n.bit_length() + 7) // 8
    padded = b"\x00\x01" + b"\xff" * (size - 3 - len(digest)) + b"\x00" + digest
    return pow(int.from_bytes(padded, "big"), key.d, key.n).to_bytes(size, "big")
