"""Read the hosts of a tornet, a directory that ``tornettools generate`` wrote.

The role of a host follows from its files, not from its name.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from onionlab.tornet.certificates import (
    is_ed25519_secret,
    is_rsa_secret,
    signing_key_expires_unix_s,
)
from onionlab.tornet.host_files import FileError, TornetFiles
from onionlab.tornet.model import RELAY_ROLES, Role, TornetHost, TornetProcess
from onionlab.tornet.shadow_config import HostEntry, ProcessEntry
from onionlab.tornet.tgen_graph import MODEL_PATHS, TgenGraph, read_tgen_graph
from onionlab.tornet.torrc_options import Options, parse_memory, read_lines

# Paths in the host's folder. If one of these files is missing, Tor generates new keys, with which
# the relay is a different relay.
FINGERPRINT = "fingerprint"
CERTIFICATE = "keys/authority_certificate"
RELAY_KEYS = (FINGERPRINT, "keys/secret_id_key", "keys/ed25519_master_id_secret_key")
AUTHORITY_KEYS = (*RELAY_KEYS, CERTIFICATE, "keys/authority_signing_key")
SERVICE_KEYS = ("hostname", "hs_ed25519_secret_key")
"""Paths in the HiddenServiceDir."""

_SECRET_KEYS = {
    "secret_id_key": is_rsa_secret,
    "authority_signing_key": is_rsa_secret,
    "ed25519_master_id_secret_key": is_ed25519_secret,
    "hs_ed25519_secret_key": is_ed25519_secret,
}
_SIGNING_CERTIFICATE = "keys/ed25519_signing_cert"

# The value of each of these Tor options is the path of a file, which must be part of the tornet.
_FILE_OPTIONS = ("ServerDNSResolvConfFile", "V3BandwidthsFile", "GeoIPFile", "GeoIPv6File")
_LIMITS = ("BandwidthRate", "BandwidthBurst")
_TORRC_ARGUMENTS = ("--defaults-torrc", "-f")


@dataclass(frozen=True)
class HostFiles:
    """A host's configuration and the content of the files that determine the host's role.

    limits: BandwidthRate in bytes per second and BandwidthBurst in bytes; None for Tor's default.
    fingerprint: the fingerprint of a relay. service: the address of an onion service. peers: the
    hosts to which TGen on this host connects.
    """

    entry: HostEntry
    folder: str
    tor: Options | None
    tgen: TgenGraph | None
    limits: tuple[int | None, int | None] = (None, None)
    fingerprint: str | None = None
    service: str | None = None
    peers: frozenset[str] = field(default=frozenset())

    def option(self, name: str) -> str:
        """Return an option of the host's Tor, or "" without a Tor or without the option."""
        return (self.tor.get(name) or "" if self.tor is not None else "").strip('"')

    def role(self, guards: set[str], exits: set[str]) -> Role | None:
        """Return the host's role, or None if no rule applies.

        guards, exits: fingerprints of the relays to which authorities always give the flag Guard or
        Exit.
        """
        serves = self.tgen is not None and self.tgen.is_server
        if self.tor is None or self.tor.get("HiddenServiceDir") is not None:
            kind: Role = "server" if self.tor is None else "onion-service"
            return kind if serves else None
        if self.is_relay:
            if self.tgen is not None:
                return None
            if self.option("AuthoritativeDirectory") == "1":
                return "authority"
            if self.fingerprint in guards:
                return "exitguard" if self.fingerprint in exits else "guard"
            return "exit" if self.fingerprint in exits else "middle"
        if self.tgen is None or serves:
            return None
        return "markov-client" if self.tgen.has_models else "perf-client"

    @property
    def is_relay(self) -> bool:
        """True if the host's Tor listens for relays and clients."""
        return self.option("ORPort").split()[:1] not in ([], ["0"])

    def model(self, role: Role, up_bit_per_s: int, down_bit_per_s: int) -> TornetHost:
        """Return the host's entry in tornet.json."""
        return TornetHost(
            role=role,
            uses_onion_services=bool(self.peers)
            and all(peer.endswith(".onion") for peer in self.peers),
            node=self.entry.network_node_id,
            address=self.entry.ip_addr,
            up_bit_per_s=up_bit_per_s,
            down_bit_per_s=down_bit_per_s,
            rate_bytes_per_s=self.limits[0],
            burst_bytes=self.limits[1],
            fingerprint=self.fingerprint if role in RELAY_ROLES else None,
            processes=tuple(
                TornetProcess(
                    program=process.program,
                    arguments=process.args,
                    start_ms=process.start_time,
                    environment=process.environment,
                    runs_to_end=process.expected_final_state is True,
                )
                for process in self.entry.processes
            ),
        )


class HostReader:
    """Reads the hosts of a tornet. Each file is read only once.

    end_unix_s: the end of the simulation.
    """

    def __init__(self, files: TornetFiles, end_unix_s: float) -> None:
        self._files = files
        self._end_unix_s = end_unix_s
        self._graph_at = functools.cache(self._read_graph)
        self.text_at = functools.cache(files.text)

    def read(self, name: str, entry: HostEntry) -> HostFiles:
        """Read the configuration of a host's programs. Raises FileError if it is unusable."""
        programs = {process.program: process for process in entry.processes}
        if len(programs) < len(entry.processes):
            # The program's name identifies a log, so the logs of two processes of one program could
            # not be distinguished.
            raise FileError(
                "it runs a program twice: remove one of the two processes, or, for OnionTrace, "
                "generate the network without --record"
            )
        for process in entry.processes:
            if process.program == "oniontrace" and _oniontrace_mode(process) != "log":
                raise FileError("its OnionTrace logs no events: generate the network with --events")
            # tornettools writes this key last for each process. If the key is missing, the file may
            # be truncated.
            if process.expected_final_state is None:
                raise FileError(
                    f"its {process.program} has no expected_final_state: write "
                    "`expected_final_state: running`, otherwise Shadow expects it to end"
                )
        tor = self._tor_options(name, programs["tor"]) if "tor" in programs else None
        tgen = self._tgen_graph(name, programs["tgen"]) if "tgen" in programs else None
        host = HostFiles(entry, self._files.host_folder(name), tor, tgen)
        rate, burst = (_limit(host, option) for option in _LIMITS)
        hostname = f"{host.folder}/{host.option('HiddenServiceDir')}/{SERVICE_KEYS[0]}"
        return replace(
            host,
            limits=(rate, burst),
            fingerprint=self._fingerprint(f"{host.folder}/{FINGERPRINT}"),
            service=self.text_at(hostname).strip() if hostname in self._files.paths else None,
            peers=frozenset(tgen.peers() if tgen is not None else ()),
        )

    def _tor_options(self, name: str, process: ProcessEntry) -> Options:
        """Return Tor's options from its file of defaults, its torrc and its command line."""
        words = process.args
        if len(words) % 2 or not all(word.startswith("-") for word in words[::2]):
            raise FileError(
                "its Tor is called with other arguments than options and their values: remove them "
                "from the process's args"
            )
        arguments = dict(zip(words[::2], words[1::2], strict=True))
        pairs: list[tuple[str, str]] = []
        for option in _TORRC_ARGUMENTS:
            path = arguments.pop(option, None)
            if path is None:
                raise FileError(
                    f"its Tor is called without {option}: specify its files with --defaults-torrc "
                    "and -f in the process's args"
                )
            lines = read_lines(path, lambda one: self.text_at(self._files.resolve(name, one)))
            pairs += [(option, value) for _, option, value in lines]
        options = Options((*pairs, *((key.lstrip("-"), value) for key, value in arguments.items())))
        if options.get("DataDirectory") != ".":
            raise FileError(
                "its DataDirectory is not the host's own folder: set `DataDirectory .` in its torrc"
            )
        for option in _FILE_OPTIONS:
            if path := options.get(option):
                self._files.resolve(name, path)
        return options

    def _tgen_graph(self, name: str, process: ProcessEntry) -> TgenGraph:
        if len(process.args) != 1:
            raise FileError(
                "its TGen is called with other arguments than a graph: give only its path in the "
                "process's args"
            )
        place = self._files.resolve(name, process.args[0])
        graph = self._graph_at(place)
        try:
            graph.check(runs_to_end=process.expected_final_state is True)
        except FileError as error:
            raise FileError(f"{place}: {error}") from None
        models = {
            attribute: [self._files.resolve(name, value) for value in graph.values(attribute)]
            for attribute in MODEL_PATHS
        }
        for path in (path for paths in models.values() for path in paths):
            if not self._graph_at(path).is_model:
                raise FileError(
                    f"{path} is not a Markov model: specify a file with a vertex called start"
                )
        if graph.has_models and not graph.has_timeouts:
            packet_models = models["packetmodelpath"]
            endless = [path for path in packet_models if not self._graph_at(path).ends]
            if endless or not packet_models:
                model = endless[0] if endless else "TGen's own packet model"
                raise FileError(
                    f"{place}: its streams never end: {model} has no observation 'F', and there is "
                    "no 'timeout'; set the attribute timeout of its streams"
                )
        return graph

    def _read_graph(self, path: str) -> TgenGraph:
        try:
            return read_tgen_graph(self._files.content(path))
        except FileError as error:
            raise FileError(f"{path}: {error}") from None

    def _fingerprint(self, path: str) -> str | None:
        """Return the fingerprint in a relay's file at `path`; None if there is no fingerprint."""
        words = self.text_at(path).split() if path in self._files.paths else []
        found = parse_fingerprint(words[1]) if len(words) == 2 else ""
        return found if len(found) == 40 else None

    def key_problems(self, host: HostFiles, role: Role) -> Iterator[str]:
        """Yield a message for each missing, damaged or expired file that a host of this role needs.

        The check ends at the first missing file.
        """
        wanted = {
            "authority": AUTHORITY_KEYS,
            "onion-service": [f"{host.option('HiddenServiceDir')}/{key}" for key in SERVICE_KEYS],
        }.get(role, RELAY_KEYS if role in RELAY_ROLES else ())
        for path in (f"{host.folder}/{key}" for key in wanted):
            if path not in self._files.paths:
                yield f"without its keys: {path} is missing"
                return
            is_complete = _SECRET_KEYS.get(posixpath.basename(path))
            if is_complete is not None and not is_complete(self._files.content(path)):
                yield f"{path} is not a complete secret key: Tor would generate another"
        if role in RELAY_ROLES and host.fingerprint is None:
            yield f"{host.folder}/{FINGERPRINT} holds no fingerprint"
        path = f"{host.folder}/{_SIGNING_CERTIFICATE}"
        if role in RELAY_ROLES and path in self._files.paths:
            try:
                expires_unix_s = signing_key_expires_unix_s(self._files.content(path))
            except ValueError as error:
                yield f"{path}: {error}"
            else:
                if expires_unix_s <= self._end_unix_s:
                    yield (
                        f"{path} has expired when the simulation ends, in 2000: generate it with "
                        "faketime"
                    )


def _oniontrace_mode(process: ProcessEntry) -> str:
    """Return OnionTrace's mode.

    OnionTrace ignores the case of keys and values (see its oniontrace-config.c).
    """
    given = dict(word.lower().split("=", 1) for word in process.args if "=" in word)
    return given.get("mode", "log")


def _limit(host: HostFiles, option: str) -> int | None:
    """Return a limit in bytes; None if the option is not set. Raises FileError if it is invalid."""
    text = host.option(option)
    try:
        return parse_memory(text) if text else None
    except FileError as error:
        raise FileError(f"its {option}: {error}") from None


def parse_fingerprint(text: str) -> str:
    """Return a fingerprint in upper case, without spaces and without a leading $."""
    return text.strip().lstrip("$").replace(" ", "").upper()
