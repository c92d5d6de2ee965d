"""Generate Tor's keys from a seed, and cache them.

A relay's identity influences the hash ring of directories, the order of relays in a consensus, and
ties in path selection. Keys are therefore generated here instead of by `tor --list-fingerprint` and
`tor-gencert`, so that a seed results in the same network for every variant and on every machine.
They are keys of simulated relays and protect nothing.

File formats: Tor's dir-spec (key certificates), src/lib/crypt_ops/crypto_rsa.c (PEM, signatures
without DigestInfo) and src/lib/crypt_ops/crypto_format.c (ed25519 files).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import Crypto
from Crypto.IO import PEM
from Crypto.Math.Numbers import Integer
from Crypto.Math.Primality import PROBABLY_PRIME, miller_rabin_test
from Crypto.PublicKey import ECC, RSA
from Crypto.Util.asn1 import DerSequence
from Crypto.Util.number import sieve_base
from pydantic import ConfigDict, TypeAdapter

from analysis.errors import AnalysisError
from analysis.formats.json_files import read_json, write_json
from onionlab.network import draws
from onionlab.network.draws import ByteStream, draw_bytes
from onionlab.paths import build_directory

RELAY_RSA_BITS = 1024  # Tor's PK_BYTES: a relay's RSA identity has exactly this length.
AUTHORITY_SIGNING_RSA_BITS = 2048
AUTHORITY_IDENTITY_RSA_BITS = 3072
RSA_EXPONENT = 65537

# Tor rejects an authority certificate that is more than a year old or not yet valid at the
# simulated start, 2000-01-01 00:00:00.
CERTIFICATE_PUBLISHED = "1999-12-31 00:00:00"
CERTIFICATE_EXPIRES = "2000-12-31 00:00:00"

_ONION_VERSION = b"\x03"

# RSA.generate divides each candidate by the first 100 primes. Then it performs several rounds of
# the Miller-Rabin test. _MILLER_RABIN_ROUNDS: length of the prime in bits -> number of rounds.
_SMALL_PRIMES = math.prod(sieve_base[:100])
_LARGER_PRIMES = math.prod(sieve_base[100:])
_MILLER_RABIN_ROUNDS = {512: 7, 1024: 4, 1536: 3}


@dataclass(frozen=True)
class RelayKeys:
    """The identity of a relay or of a directory authority.

    files: name in Tor's keys/ directory -> content. v3_identity: the fingerprint of the identity
    key in an authority's certificate; "" for a relay.
    """

    __pydantic_config__: ClassVar = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    fingerprint: str
    files: dict[str, bytes]
    v3_identity: str = ""


@dataclass(frozen=True)
class OnionServiceKeys:
    """The identity of an onion service.

    address: the complete address that clients request, including `.onion`. files: name in the
    HiddenServiceDir -> content.
    """

    address: str
    files: dict[str, bytes]


@functools.cache
def load_keys(root: Path, seed: int, name: str, *, is_authority: bool = False) -> RelayKeys:
    """Return the keys of a relay or an authority.

    The keys are cached in files, because generating an authority's keys takes seconds. Without a
    file, or if its checksum is wrong, the same keys are generated again from the seed. Each version
    of this module has its own folder of files. So the state of the cache never changes a run.
    """
    file = _cache(root) / f"{'' if is_authority else 'relay-'}{seed}-{name}.json"
    try:
        stored = read_json(file)
        if stored["sha256"] == _checksum(stored["keys"]):
            return _CACHED.validate_json(json.dumps(stored["keys"]))
    except (AnalysisError, ValueError, KeyError, TypeError):
        pass  # The file is missing or invalid, so the keys are generated below.
    made = make_authority_keys(seed, name) if is_authority else make_relay_keys(seed, name)
    data = _CACHED.dump_python(made, mode="json")
    write_json(file, {"sha256": _checksum(data), "keys": data}, durable=False)
    return made


_CACHED = TypeAdapter(RelayKeys)


def has_keys(root: Path, seed: int) -> bool:
    """Return whether this seed's authority keys are cached, so that composing its runs is fast."""
    return any(_cache(root).glob(f"{seed}-*.json"))


@functools.cache
def _cache(root: Path) -> Path:
    """Return the cache folder. Its name is a hash of this code and of the version of Crypto."""
    digest = hashlib.sha256(Crypto.__version__.encode())
    for file in (__file__, str(draws.__file__)):
        digest.update(Path(file).read_bytes())
    return build_directory(root) / "keys" / digest.hexdigest()[:16]


def _checksum(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def make_relay_keys(seed: int, name: str) -> RelayKeys:
    """Generate the identity keys of one relay.

    Tor generates the medium-term keys itself when it starts.
    """
    rsa = _make_rsa(RELAY_RSA_BITS, seed, "relay identity", name)
    return RelayKeys(
        fingerprint=_fingerprint(rsa),
        files={
            "secret_id_key": _private_pem(rsa),
            "ed25519_master_id_secret_key": _ed25519_secret_file(_ed25519_secret(seed, name)),
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
) -> RelayKeys:
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
        f"dir-identity-key\n{_armour('RSA PUBLIC KEY', _public_der(identity))}"
        f"dir-signing-key\n{_armour('RSA PUBLIC KEY', _public_der(signing))}"
        f"dir-key-crosscert\n{_armour('ID SIGNATURE', cross)}"
        "dir-key-certification\n"
    )
    certification = _sign_digest(identity, hashlib.sha1(body.encode()).digest())
    certificate = body + _armour("SIGNATURE", certification)
    return RelayKeys(
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
    """Generate the same key as ``RSA.generate`` with the same random bytes, but twice as fast.

    ``RSA.generate`` protects secrets: its calculations take the same time for all numbers. The keys
    here protect nothing, so most candidates are tested with Python's integers, which are faster.
    """
    read = ByteStream(seed, "rsa", str(bits), *label).read
    p, q = sorted((_find_prime(bits // 2, read), _find_prime(bits // 2, read)))
    d = pow(RSA_EXPONENT, -1, math.lcm(p - 1, q - 1))
    return RSA.construct((p * q, RSA_EXPONENT, d, p, q, pow(p, -1, q)), consistency_check=False)


def _find_prime(bits: int, read: Callable[[int], bytes]) -> int:
    """Draw a prime of ``bits`` bits.

    It is so large that the product of two such primes has exactly ``2 * bits`` bits.
    """
    minimum = math.isqrt(1 << (2 * bits - 1))
    while True:
        candidate = int(Integer.random(exact_bits=bits, randfunc=read)) | 1
        if (
            candidate > minimum
            and candidate % RSA_EXPONENT != 1
            and math.gcd(candidate, _SMALL_PRIMES) == 1
            and _passes_miller_rabin(candidate, _MILLER_RABIN_ROUNDS[bits], read)
        ):
            return candidate


def _passes_miller_rabin(candidate: int, rounds: int, read: Callable[[int], bytes]) -> bool:
    """Return whether a candidate passes the Miller-Rabin test. Read as many bytes as the test does.

    First divide by small primes. This rejects half of the composite candidates, and is faster than
    the test.
    """
    if math.gcd(candidate, _LARGER_PRIMES) == 1:
        return bool(miller_rabin_test(candidate, rounds, read) == PROBABLY_PRIME)
    # The candidate would fail in the first round of the test. Before that, the test would draw a
    # base, so read the bytes for this base.
    Integer.random_range(min_inclusive=2, max_inclusive=candidate - 2, randfunc=read)
    return False


def ed25519_identity(seed: int, name: str) -> str:
    """Return a relay's public ed25519 identity, in base64 without padding as in descriptors."""
    public = ECC.construct(curve="Ed25519", seed=_ed25519_secret(seed, name)).public_key()
    return base64.b64encode(public.export_key(format="raw")).decode().rstrip("=")


def _ed25519_secret(seed: int, name: str) -> bytes:
    return draw_bytes(32, seed, "ed25519 identity", name)


def _ed25519_secret_file(secret: bytes) -> bytes:
    """Return Tor's file of an expanded ed25519 secret key: a 32-byte tag and the 64-byte key."""
    expanded = bytearray(hashlib.sha512(secret).digest())
    expanded[0] &= 248
    expanded[31] &= 63
    expanded[31] |= 64
    return b"== ed25519v1-secret: type0 ==".ljust(32, b"\0") + bytes(expanded)


def _public_der(key: RSA.RsaKey) -> bytes:
    """Return the PKCS#1 RSAPublicKey structure, which Tor hashes for fingerprints."""
    return DerSequence([key.n, key.e]).encode()


def _fingerprint(key: RSA.RsaKey) -> str:
    return hashlib.sha1(_public_der(key)).hexdigest().upper()


def _private_pem(key: RSA.RsaKey) -> bytes:
    return key.export_key("PEM", pkcs=1) + b"\n"


def _armour(kind: str, content: bytes) -> str:
    return PEM.encode(content, kind) + "\n"


def _sign_digest(key: RSA.RsaKey, digest: bytes) -> bytes:
    """Sign as Tor does: PKCS#1 v1.5 padding (type 1) around the bare digest."""
    size = (key.n.bit_length() + 7) // 8
    padded = b"\x00\x01" + b"\xff" * (size - 3 - len(digest)) + b"\x00" + digest
    message = int.from_bytes(padded, "big")
    # The Chinese remainder theorem makes this three times as fast as one power modulo n.
    p, q, d = int(key.p), int(key.q), int(key.d)
    by_p, by_q = pow(message, d % (p - 1), p), pow(message, d % (q - 1), q)
    return (by_p + p * ((by_q - by_p) * int(key.u) % q)).to_bytes(size, "big")
