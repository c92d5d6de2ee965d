"""Replace the random keys of a `tornettools generate` directory with keys drawn from a seed.

tornettools samples hosts by its seed but lets Tor generate random keys. A second network with the
same options therefore differs: relays have other positions on the hash ring of directories and in
the order of the consensus. If the keys are drawn from a seed, the same output of
`tornettools stage` and the same options result in the same network on every machine.
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
"""Files of a host that are removed with its random keys. Tor writes them again when it starts."""


def draw_seeded_keys(directory: Path, seed: int) -> None:
    """Replace the keys of all relays, authorities and onion services, and all references to them.

    A host's keys are a function of the seed, the host's name and the directory's other content, so
    different networks have different keys. Tor generates medium-term keys at the start of each run,
    as in other networks of this project. directory: the unmodified output of `tornettools
    generate`.
    """
    hosts = _Hosts(directory)
    texts = dict(_texts(directory))
    templates = {path: hosts.replace_identities(content) for path, content in texts.items()}
    identities = hosts.draw(seed, _digest(directory, templates))
    for path, content in templates.items():
        changed = _PLACEHOLDER.sub(lambda found: identities[found[0]], content)
        if changed != texts[path]:
            path.write_bytes(changed)


_PLACEHOLDER = re.compile(rb"\x00[^\x00]+\x00[^\x00]+\x00")
"""A placeholder for an identity: the host and the kind of identity, delimited by NULs, which do not
occur in the files."""


class _Hosts:
    """The hosts that have keys, and their identities in the network's files."""

    def __init__(self, directory: Path) -> None:
        hosts = directory / HOST_TEMPLATES
        self._relays: list[Path] = []
        self._services = sorted(path.parent for path in hosts.glob("*/*/hostname"))
        # Text of an identity in files -> its placeholder.
        self._placeholders: dict[bytes, bytes] = {}
        for host in sorted(path.parent for path in hosts.glob("*/fingerprint")):
            words = (host / "fingerprint").read_text().split()
            if len(words) != 2:
                # Skip this host. The later import of the network reports the error.
                continue
            self._relays.append(host)
            self._add_fingerprint(host.name, "relay", words[1])
            if (certificate := host / "keys/authority_certificate").is_file():
                found = re.search(r"^fingerprint (\S+)$", certificate.read_text(), re.MULTILINE)
                if found is not None:
                    self._add_fingerprint(host.name, "authority", found[1])
        for folder in self._services:
            address = (folder / "hostname").read_text().strip().encode()
            self._placeholders[address] = _placeholder(folder.parent.name, "service")

    def _add_fingerprint(self, host: str, kind: str, fingerprint: str) -> None:
        for form, write in _FORMS.items():
            self._placeholders[write(fingerprint).encode()] = _placeholder(host, f"{kind} {form}")

    def replace_identities(self, content: bytes) -> bytes:
        """Return ``content`` with all identities replaced by placeholders."""
        if not self._placeholders:
            return content
        # If one identity is a prefix of another identity, match the longer identity.
        identities = sorted(self._placeholders, key=len, reverse=True)
        pattern = b"|".join(re.escape(text) for text in identities)
        return re.sub(pattern, lambda found: self._placeholders[found[0]], content)

    def draw(self, seed: int, network_digest: str) -> Mapping[bytes, bytes]:
        """Generate and write all keys. Return the new identity for each placeholder."""
        drawn: dict[bytes, bytes] = {}
        for host in self._relays:
            name = f"{network_digest} {host.name}"
            is_authority = (host / "keys/authority_certificate").is_file()
            keys = (make_authority_keys if is_authority else make_relay_keys)(seed, name)
            for kind, fingerprint in (("relay", keys.fingerprint), ("authority", keys.v3_identity)):
                for form, write in _FORMS.items():
                    drawn[_placeholder(host.name, f"{kind} {form}")] = write(fingerprint).encode()
            for path in (*(host / "keys").iterdir(), *(host / name for name in _MADE_BY_TOR)):
                path.unlink(missing_ok=True)
            for name_of_key, content in keys.files.items():
                (host / "keys" / name_of_key).write_bytes(content)
        for folder in self._services:
            service = make_onion_service_keys(seed, f"{network_digest} {folder.parent.name}")
            drawn[_placeholder(folder.parent.name, "service")] = service.address.encode()
            for path in folder.iterdir():
                if path.name in service.files:
                    path.write_bytes(service.files[path.name])
        return drawn


def _placeholder(host: str, which: str) -> bytes:
    return f"\0{host}\0{which}\0".encode()


def _in_fours(fingerprint: str) -> str:
    return " ".join(fingerprint[begin : begin + 4] for begin in range(0, len(fingerprint), 4))


_FORMS: Mapping[str, Callable[[str], str]] = {"in one": str, "in fours": _in_fours}
"""The notations of a fingerprint in files. DirServer lines of a torrc have it in groups of four."""


def _texts(directory: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield all files that may refer to keys, with their bytes."""
    for path in sorted(directory.rglob("*")):
        of_keys = path.parent.name == "keys" or path.name.endswith("_secret_key")
        if path.is_symlink() or not path.is_file() or of_keys or path.name in _MADE_BY_TOR:
            continue
        if not path.name.endswith((*ATLAS_ENDINGS, ".log")):
            yield path, path.read_bytes()


def _digest(directory: Path, templates: Mapping[Path, bytes]) -> str:
    """Return a digest of all files that may refer to keys, without the directory's path.

    templates: path of each file -> its content with placeholders instead of identities.
    """
    digest = hashlib.sha256()
    for path, content in templates.items():
        here = content.replace(str(directory).encode(), b"")
        digest.update(f"{path.relative_to(directory)}\0{len(here)}\0".encode() + here)
    return digest.hexdigest()[:32]
