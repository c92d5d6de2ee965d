"""Keys that depend on the seed replace the random ones of tornettools."""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab.rundir.keys import make_authority_keys
from onionlab.rundir.seeded_keys import draw_seeded_keys
from onionlab.tornet.certificates import is_ed25519_secret, is_rsa_secret
from onionlab.tornet.reading import read_tornet

from .tiny import FINGERPRINTS, HOSTS, IDENTITY, SERVICE, TinyTornet, contents


@pytest.fixture(autouse=True)
def small_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use short keys, since finding primes of 1,536 bits takes seconds."""
    monkeypatch.setattr("onionlab.rundir.keys.AUTHORITY_IDENTITY_RSA_BITS", 1024)
    monkeypatch.setattr("onionlab.rundir.keys.AUTHORITY_SIGNING_RSA_BITS", 1024)


def generated(folder: Path, chance: str = "", change: tuple[str, str, str] | None = None) -> Path:
    """Write a directory like that of tornettools.

    chance: hexadecimal digits with which all fingerprints begin. Different digits simulate
    different random keys of tornettools. change: arguments of ``TinyTornet.replace``.
    """
    tiny = TinyTornet()
    for name in FINGERPRINTS:
        tiny.files[f"{HOSTS}/{name}/fingerprint-ed25519"] = f"{name} {chance or 'x'}\n".encode()
        tiny.files[f"{HOSTS}/{name}/lock"] = b""
        tiny.files[f"{HOSTS}/{name}/keys/secret_onion_key"] = chance.encode()
    if change is not None:
        tiny.replace(*change)
    if chance:
        told = [*FINGERPRINTS.values(), IDENTITY]
        swapped = [(text, chance + text[len(chance) :]) for text in told]
        swapped += [
            tuple(" ".join(t[i : i + 4] for i in range(0, 40, 4)) for t in pair)  # type: ignore[misc]
            for pair in swapped
        ]
        swapped += [(SERVICE, "b" * 56 + ".onion")]
        for path, content in tiny.files.items():
            for old, new in swapped:
                content = content.replace(old.encode(), new.encode())
            tiny.files[path] = content
    return tiny.write(folder)


def test_chance_does_not_show(tmp_path: Path) -> None:
    one, other = generated(tmp_path / "one"), generated(tmp_path / "two/more", "5EED")
    assert contents(one) != contents(other)
    for directory in (one, other):
        draw_seeded_keys(directory, 1)
    assert contents(one) == contents(other)


def test_all_references_to_old_keys_are_replaced(tmp_path: Path) -> None:
    directory = generated(tmp_path)
    before = contents(directory)
    draw_seeded_keys(directory, 1)
    # This checks fingerprints, votes, bandwidths and peers, so it fails for inconsistent keys.
    found = read_tornet(directory)
    old = {*FINGERPRINTS.values(), IDENTITY, SERVICE}
    assert not old & {host.fingerprint for host in found.tornet.hosts.values()}
    after = contents(directory)
    assert not [path for path, content in after.items() for o in old if o.encode() in content]
    # Only the keys of a relay's identity remain; Tor generates the others.
    gone = {"fingerprint-ed25519", "lock", "keys/secret_onion_key", "keys/ed25519_signing_cert"}
    assert {path for path in before if path not in after} == {
        f"{HOSTS}/{name}/{path}" for name in FINGERPRINTS for path in gone
    }
    for name in FINGERPRINTS:
        assert is_rsa_secret(after[f"{HOSTS}/{name}/keys/secret_id_key"])
        assert is_ed25519_secret(after[f"{HOSTS}/{name}/keys/ed25519_master_id_secret_key"])
    assert is_ed25519_secret(after[f"{HOSTS}/hidden/hs/hs_ed25519_secret_key"])
    told = after["conf/perf-hs.graphml"]
    assert after[f"{HOSTS}/hidden/hs/hostname"].strip() in told
    # Files without keys are unchanged.
    changed = {path for path in before if path in after and before[path] != after[path]}
    assert {path for path in changed if "/keys/" not in path} == {
        "conf/authority.torrc",
        "conf/common.torrc",
        "conf/perf-hs.graphml",
        f"{HOSTS}/bw/v3bw",
        f"{HOSTS}/bw/v3bw.init",
        f"{HOSTS}/hidden/hs/hostname",
        f"{HOSTS}/hidden/hs/hs_ed25519_secret_key",
        *(f"{HOSTS}/{name}/fingerprint" for name in FINGERPRINTS),
    }


def test_no_two_networks_have_the_same_keys(tmp_path: Path) -> None:
    seen = set()
    change = ("conf/common.torrc", "TestingTorNetwork 1", "TestingTorNetwork  1")
    for name, seed, changed in (("a", 1, None), ("b", 2, None), ("c", 1, change)):
        directory = generated(tmp_path / name, change=changed)
        draw_seeded_keys(directory, seed)
        seen.add((directory / HOSTS / "bob/fingerprint").read_text())
        seen.add((directory / HOSTS / "hidden/hs/hostname").read_text())
    assert len(seen) == 6


def test_an_authority_is_one_of_its_certificate(tmp_path: Path) -> None:
    directory = generated(tmp_path)
    draw_seeded_keys(directory, 1)
    certificate = (directory / HOSTS / "alice/keys/authority_certificate").read_text()
    told = (directory / "conf/common.torrc").read_text()
    assert f"v3ident={certificate.split('fingerprint ')[1].split()[0]} " in told
    names = make_authority_keys(1, "x").files.keys()
    assert {path.name for path in (directory / HOSTS / "alice/keys").iterdir()} == names
