"""Keys of a seed for what `tornettools generate` wrote, in place of those that it drew.

tornettools samples hosts by its seed, and has Tor draw their keys by chance: generated again, a
network is another one, in which relays stand elsewhere on the hash ring of directories and in the
order of the consensus. With keys of a seed, the same staged files and options give the same network
on every machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from analysis.formats.files import HOST_TEMPLATES
from onionlab.rundir.keys import make_authority_keys, make_onion_service_keys, make_relay_keys
from onionlab.tornet.host_files import ATLAS_ENDINGS

_MADE_BY_TOR = ("fingerprint-ed25519", "lock")
"""Beside the keys: Tor writes them anew when it starts."""


def draw_seeded_keys(directory: Path, seed: int) -> None:
    """Replace the keys of all relays, authorities and onion services, and what tells of them.

    They are a function of the seed, of the host's name and of all texts in the directory, so that
    no two networks have the same. Keys that last for a month Tor makes at the start of each run, as
    it does in networks of this project.

    Args:
        directory: what `tornettools generate` wrote, and nobody has changed.
        seed: whole number.
    """
    hosts = _Hosts(directory)
    texts = dict(_texts(directory))
    unnamed = {path: hosts.without_identities(content) for path, content in texts.items()}
    of_network = _digest(directory, unnamed)
    identities = hosts.draw(seed, of_network)
    for path, content in unnamed.items():
        changed = _PLACE.sub(lambda found: identities[found[0]], content)
        if changed != texts[path]:
            path.write_bytes(changed)


_PLACE = re.compile(rb"\x00[^\x00]+\x00[^\x00]+\x00")
"""Stands for an identity: whose and which one. No text has such characters."""


class _Hosts:
    """The hosts that have keys, and the identities which files tell of them."""

    def __init__(self, directory: Path) -> None:
        hosts = directory / HOST_TEMPLATES
        self._relays: list[Path] = []
        self._services = sorted(path.parent for path in hosts.glob("*/*/hostname"))
        # What files tell -> what stands for it.
        self._places: dict[bytes, bytes] = {}
        for host in sorted(path.parent for path in hosts.glob("*/fingerprint")):
            words = (host / "fingerprint").read_text().split()
            if len(words) != 2:
                # An import says what is wrong with it.
                continue
            self._relays.append(host)
            self._note(host.name, "relay", words[1])
            if (certificate := host / "keys/authority_certificate").is_file():
                found = re.search(r"^fingerprint (\S+)$", certificate.read_text(), re.MULTILINE)
                if found is not None:
                    self._note(host.name, "authority", found[1])
        for folder in self._services:
            address = (folder / "hostname").read_text().strip().encode()
            self._places[address] = _place(folder.parent.name, "service")

    def _note(self, host: str, kind: str, fingerprint: str) -> None:
        for form, write in _FORMS.items():
            self._places[write(fingerprint).encode()] = _place(host, f"{kind} {form}")

    def without_identities(self, content: bytes) -> bytes:
        """A text in which places stand for all identities."""
        if not self._places:
            return content
        # Where one is the beginning of another, the longer one.
        told = sorted(self._places, key=len, reverse=True)
        pattern = b"|".join(re.escape(text) for text in told)
        return re.sub(pattern, lambda found: self._places[found[0]], content)

    def draw(self, seed: int, of_network: str) -> Mapping[bytes, bytes]:
        """Draw all keys and write them; returns for each place the identity that comes there."""
        drawn: dict[bytes, bytes] = {}
        for host in self._relays:
            name = f"{of_network} {host.name}"
            identities: dict[str, str] = {}
            if (host / "keys/authority_certificate").is_file():
                authority = make_authority_keys(seed, name)
                identities["authority"] = authority.v3_identity
                identities["relay"], files = authority.fingerprint, authority.files
            else:
                relay = make_relay_keys(seed, name)
                identities["relay"], files = relay.fingerprint, relay.files
            for kind, fingerprint in identities.items():
                for form, write in _FORMS.items():
                    drawn[_place(host.name, f"{kind} {form}")] = write(fingerprint).encode()
            for path in (*(host / "keys").iterdir(), *(host / name for name in _MADE_BY_TOR)):
                path.unlink(missing_ok=True)
            for name_of_key, content in files.items():
                (host / "keys" / name_of_key).write_bytes(content)
        for folder in self._services:
            service = make_onion_service_keys(seed, f"{of_network} {folder.parent.name}")
            drawn[_place(folder.parent.name, "service")] = service.address.encode()
            for path in folder.iterdir():
                if path.name in service.files:
                    path.write_bytes(service.files[path.name])
        return drawn


def _place(host: str, which: str) -> bytes:
    return f"\0{host}\0{which}\0".encode()


def _in_fours(fingerprint: str) -> str:
    return " ".join(fingerprint[begin : begin + 4] for begin in range(0, len(fingerprint), 4))


_FORMS: Mapping[str, Callable[[str], str]] = {"in one": str, "in fours": _in_fours}
"""How files write a fingerprint: DirServer lines of a torrc have it in groups."""


def _texts(directory: Path) -> Iterator[tuple[Path, bytes]]:
    """All files that may tell of keys, with their bytes."""
    for path in sorted(directory.rglob("*")):
        of_keys = path.parent.name == "keys" or path.name.endswith("_secret_key")
        if path.is_symlink() or not path.is_file() or of_keys or path.name in _MADE_BY_TOR:
            continue
        if not path.name.endswith((*ATLAS_ENDINGS, ".log")):
            yield path, path.read_bytes()


def _digest(directory: Path, unnamed: Mapping[Path, bytes]) -> str:
    """A digest of all texts but for the identities and for where the directory is."""
    digest = hashlib.sha256()
    for path, content in unnamed.items():
        here = content.replace(str(directory).encode(), b"")
        digest.update(f"{path.relative_to(directory)}\0{len(here)}\0".encode() + here)
    return digest.hexdigest()[:32]
