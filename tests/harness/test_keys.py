"""Keys and certificates are deterministic, and well formed by Tor's specification."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from Crypto.PublicKey import ECC, RSA

from onionlab.network.draws import ByteStream
from onionlab.rundir.keys import (
    RelayKeys,
    _make_rsa,
    ed25519_identity,
    has_keys,
    load_keys,
    make_authority_keys,
    make_onion_service_keys,
    make_relay_keys,
    onion_address,
)


@pytest.fixture(scope="module")
def authority() -> RelayKeys:
    return make_authority_keys(1, "authority1")


def unsign(key: RSA.RsaKey, signature: bytes) -> bytes:
    """Return the digest that was signed.

    Tor pads the digest as PKCS#1 v1.5, type 1, without the identifier of the hash function.
    """
    size = (key.n.bit_length() + 7) // 8
    padded = pow(int.from_bytes(signature, "big"), key.e, key.n).to_bytes(size, "big")
    head, digest = padded[:-20], padded[-20:]
    assert re.fullmatch(rb"\x00\x01\xff+\x00", head)
    return digest


def block(certificate: str, kind: str, after: str) -> bytes:
    rest = certificate[certificate.index(after) :]
    found = re.search(f"-----BEGIN {kind}-----\n(.*?)-----END {kind}-----", rest, re.DOTALL)
    assert found
    return base64.b64decode(found[1])


def test_a_fingerprint_is_the_digest_of_the_public_key() -> None:
    keys = make_relay_keys(1, "relay1guard")
    key = RSA.import_key(keys.files["secret_id_key"])
    # The fingerprint is the digest of the PKCS#1 key inside SubjectPublicKeyInfo.
    spki = key.public_key().export_key("DER")
    pkcs1 = spki[spki.index(b"\x03\x81") + 4 :]
    assert keys.fingerprint == hashlib.sha1(pkcs1).hexdigest().upper()
    assert key.n.bit_length() == 1024
    assert key.e == 65537


@pytest.mark.parametrize(("bits", "seed"), [(1024, 1), (1024, 2), (1024, 3), (2048, 1), (3072, 1)])
def test_a_key_is_the_one_that_the_library_generates(bits: int, seed: int) -> None:
    stream = ByteStream(seed, "rsa", str(bits), "relay")
    assert _make_rsa(bits, seed, "relay") == RSA.generate(bits, randfunc=stream.read)


def test_a_certificate_is_signed_by_both_keys(authority: RelayKeys) -> None:
    certificate = authority.files["authority_certificate"].decode()
    identity_der = block(certificate, "RSA PUBLIC KEY", "dir-identity-key")
    identity = RSA.import_key(identity_der)
    signing = RSA.import_key(block(certificate, "RSA PUBLIC KEY", "dir-signing-key"))
    assert identity.n == RSA.import_key(authority.files["authority_identity_key"]).n
    assert signing.n == RSA.import_key(authority.files["authority_signing_key"]).n
    digest = hashlib.sha1(identity_der).digest()
    assert digest.hex().upper() == authority.v3_identity
    assert unsign(signing, block(certificate, "ID SIGNATURE", "dir-key-crosscert")) == digest
    end = "dir-key-certification\n"
    body = certificate[: certificate.index(end) + len(end)]
    signature = block(certificate, "SIGNATURE", end)
    assert unsign(identity, signature) == hashlib.sha1(body.encode()).digest()


def test_a_certificate_is_valid_at_the_simulated_start(authority: RelayKeys) -> None:
    certificate = authority.files["authority_certificate"].decode()
    (published,) = re.findall(r"dir-key-published (.*)", certificate)
    (expires,) = re.findall(r"dir-key-expires (.*)", certificate)
    # The simulated time begins at 2000-01-01 00:00:00. Tor requires a publication time in the year
    # before that.
    assert "1999-01-02 00:00:00" < published < "2000-01-01 00:00:00" < expires


def cached(root: Path) -> RelayKeys:
    load_keys.cache_clear()  # Only files count.
    return load_keys(root, 1, "authority1", is_authority=True)


def test_keys_are_drawn_once_and_again_if_the_file_is_damaged(
    tmp_path: Path, authority: RelayKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def make(seed: int, name: str) -> RelayKeys:
        drawn.append(f"{seed} {name}")
        return authority

    monkeypatch.setattr("onionlab.rundir.keys.make_authority_keys", make)
    assert not has_keys(tmp_path, 1)
    assert [cached(tmp_path), cached(tmp_path)] == [authority, authority]
    assert drawn == ["1 authority1"]
    assert [has_keys(tmp_path, seed) for seed in (1, 2, 11)] == [True, False, False]
    (file,) = tmp_path.rglob("1-authority1.json")
    text, fingerprint = file.read_text(), authority.fingerprint
    changed = text.replace(fingerprint, fingerprint[::-1])
    for damaged in (text[: len(text) // 2], changed, "", "[1, 2]"):
        file.write_text(damaged)
        assert cached(tmp_path) == authority
        assert file.read_text() == text
    assert drawn == ["1 authority1"] * 5


def public_key(secret: bytes) -> bytes:
    """Return the Ed25519 key of a file with a secret key: the base point times the scalar."""
    base = ECC.construct(
        curve="Ed25519",
        point_x=15112221349535400772501151409588531511454012693041857206046113283949847762202,
        point_y=46316835694926478169428394003475163141307993866256225615783033603165251855960,
    ).pointQ
    point = base * int.from_bytes(secret[32:64], "little")
    return (int(point.y) | (int(point.x) & 1) << 255).to_bytes(32, "little")


def test_the_public_identity_of_a_relay_belongs_to_the_secret_one() -> None:
    secret = make_relay_keys(1, "one").files["ed25519_master_id_secret_key"]
    assert base64.b64decode(ed25519_identity(1, "one") + "=") == public_key(secret)


def test_an_onion_services_address_is_that_of_its_secret_key() -> None:
    keys = make_onion_service_keys(1, "onionservice1")
    assert keys == make_onion_service_keys(1, "onionservice1")
    assert keys.address != make_onion_service_keys(2, "onionservice1").address
    assert keys.files["hostname"] == f"{keys.address}\n".encode()
    public = keys.files["hs_ed25519_public_key"]
    assert public[:32] == b"== ed25519v1-public: type0 ==".ljust(32, b"\0")
    secret = keys.files["hs_ed25519_secret_key"]
    assert secret[:32] == b"== ed25519v1-secret: type0 ==".ljust(32, b"\0")
    assert public[32:] == public_key(secret)
    label = base64.b32decode(keys.address.removesuffix(".onion").upper())
    assert label[:32] == public[32:]
    assert label[34:] == b"\x03"


def test_an_onion_address_is_the_one_that_the_specification_gives() -> None:
    """The encoding follows rend-spec-v3. The address was generated by Tor."""
    address = "scnsleif7vscaf6qlylydtg4szgilhjssrf3pkbvycp3o3awe6q6m4qd"
    public = base64.b32decode(address.upper())[:32]
    assert onion_address(public) == f"{address}.onion"
