"""Determine the role of each host of a tornet from its files, and check the files.

The rules do not use host names: the torrc of a Tor and the graph of a TGen determine the role.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.formats.files import HOST_TEMPLATES
from onionlab.tornet.certificates import (
    AuthorityCertificate,
    is_ed25519_secret,
    is_rsa_secret,
    read_authority_certificate,
    signing_key_expires_unix_s,
)
from onionlab.tornet.host_files import FileError, TornetFiles
from onionlab.tornet.model import EPOCH_UNIX_S, RELAY_ROLES, Role, TornetHost, TornetProcess
from onionlab.tornet.path_graph import PathGraph
from onionlab.tornet.shadow_config import CONFIGURATION, HostEntry, ProcessEntry, ShadowConfig
from onionlab.tornet.tgen_graph import MODEL_PATHS, GraphError, TgenGraph, read_tgen_graph
from onionlab.tornet.torrc_options import Options, TorrcError, parse_memory, read_options
from onionlab.yamlfile.units import show

# Paths in the host's folder. If one is missing, Tor generates new keys, and thus a different relay.
RELAY_KEYS = (
    "fingerprint",
    "keys/secret_id_key",
    "keys/ed25519_master_id_secret_key",
)
AUTHORITY_KEYS = (
    *RELAY_KEYS,
    "keys/authority_certificate",
    "keys/authority_signing_key",
)
SERVICE_KEYS = ("hostname", "hs_ed25519_secret_key")
"""Paths in the HiddenServiceDir."""

_SECRET_KEYS = {
    "secret_id_key": is_rsa_secret,
    "authority_signing_key": is_rsa_secret,
    "ed25519_master_id_secret_key": is_ed25519_secret,
    "hs_ed25519_secret_key": is_ed25519_secret,
}

# Only folders of hosts contain these files.
_HOST_FILES = ("torrc-defaults", "torrc", "tgenrc.graphml", "fingerprint", "hostname")

# Tor options whose value is a file, if they are set.
_FILE_OPTIONS = ("ServerDNSResolvConfFile", "V3BandwidthsFile", "GeoIPFile", "GeoIPv6File")

_LIMITS = ("BandwidthRate", "BandwidthBurst")

# The complete line of a relay in a bandwidth file.
_MEASURED = re.compile(
    r"^(?=(?:[^\n]*[ \t])?bw=[0-9])(?:[^\n]*[ \t])?node_id=\$?([0-9A-Fa-f]{40})(?:[ \t][^\n]*)?\n",
    re.MULTILINE,
)

_TORRC_ARGUMENTS = ("--defaults-torrc", "-f")


@dataclass(frozen=True)
class _Parts:
    """The files that determine a host's role."""

    tor: Options | None
    tgen: TgenGraph | None


@dataclass(frozen=True)
class _Authority:
    """A DirServer line: the properties of an authority that every Tor expects."""

    nickname: str
    identity: str
    address: str
    fingerprint: str


class Checker:
    """Checks all hosts of a configuration; use each instance once."""

    def __init__(
        self, config: ShadowConfig, files: TornetFiles, graph: PathGraph, stop_ms: int
    ) -> None:
        self.hosts: dict[str, TornetHost] = {}
        """Hosts by name, as far as they could be parsed; filled by `problems`."""
        self._config = config
        self._files = files
        self._graph = graph
        self._end_unix_s = EPOCH_UNIX_S + stop_ms / 1000
        self._parts: dict[str, _Parts] = {}
        self._peers: dict[str, set[str]] = {}
        self._services: dict[str, str] = {}
        self._graph_at = functools.cache(self._read_graph)
        self._text_at = functools.cache(files.text)

    def problems(self) -> list[str]:
        """Return all problems, one sentence each; if there are none, `hosts` contains every host.

        Relations between hosts are checked only if each host is complete. Otherwise one missing
        file would result in many messages.
        """
        found = [*self._orphaned_folders(), *self._executables(), *self._host_problems()]
        if found:
            return found
        return [
            *self._addresses(),
            *self._authority_problems(),
            *self._relay_problems(),
            *self._peer_problems(),
        ]

    def _orphaned_folders(self) -> Iterator[str]:
        """Yield a folder without its host: a truncated YAML file may still be valid YAML."""
        folders = {
            path.removeprefix(f"{HOST_TEMPLATES}/").partition("/")[0]: path
            for path in sorted(self._files.paths, reverse=True)
            if path.startswith(f"{HOST_TEMPLATES}/") and posixpath.basename(path) in _HOST_FILES
        }
        for name in sorted(folders.keys() - self._config.hosts.keys())[:1]:
            yield (
                f"{folders[name]} does not belong to a host of {CONFIGURATION}: that file is "
                "truncated, "
                "or the folder is obsolete and should be removed"
            )

    def _executables(self) -> Iterator[str]:
        """Yield a problem for each program with several executables: a run uses only one."""
        hosts: dict[str, dict[str, list[str]]] = {}
        for name, entry in self._config.hosts.items():
            for process in entry.processes:
                path = posixpath.normpath(process.path)
                hosts.setdefault(process.program, {}).setdefault(path, []).append(name)
        for program, by_path in hosts.items():
            if len(by_path) > 1:
                named = ", ".join(f"{path} ({_some(names)})" for path, names in by_path.items())
                yield (
                    f"{CONFIGURATION} names {len(by_path)} executables of {program}, but a run "
                    f"would use one for all: {named}. Give all the same path. To run another Tor "
                    "on some hosts, use tor.variants and tor.deployment in the experiment"
                )

    def _host_problems(self) -> Iterator[str]:
        for name, entry in self._config.hosts.items():
            try:
                self._parts[name] = self._read_parts(name, entry)
            except (FileError, TorrcError, GraphError) as error:
                yield f"host {name}: {error}"
        guards, exits = self._voted("Guard"), self._voted("Exit")
        for name, parts in self._parts.items():
            entry = self._config.hosts[name]
            role = self._role(name, parts, guards, exits)
            if role is None:
                yield (
                    f"host {name}: its role is unknown: it is neither an authority, relay, onion "
                    "service or server nor a client with TGen's streams or models; remove it from "
                    f"{CONFIGURATION}, or give it the programs and the torrc of one of these"
                )
                continue
            yield from (
                f"host {name}: {problem}" for problem in self._key_problems(name, role, parts)
            )
            up, down = self._links(entry)
            if up is None or down is None:
                yield (
                    f"host {name}: neither it nor its node has a bandwidth: set bandwidth_up and "
                    f"bandwidth_down in {CONFIGURATION}"
                )
                continue
            self.hosts[name] = self._host(name, entry, role, parts, (up, down))

    def _read_parts(self, name: str, entry: HostEntry) -> _Parts:
        """Read the configuration of a host's programs. Raises FileError, TorrcError, GraphError."""
        tors = [process for process in entry.processes if process.program == "tor"]
        tgens = [process for process in entry.processes if process.program == "tgen"]
        if len(tors) > 1 or len(tgens) > 1:
            raise FileError("it runs Tor or TGen twice: remove one of the two processes")
        if sum(process.program == "oniontrace" for process in entry.processes) > 1:
            # The program's name identifies its log, so two logs could not be distinguished.
            raise FileError("it runs OnionTrace twice: generate the network without --record")
        for process in entry.processes:
            if process.program == "oniontrace" and _mode(process.args) != "log":
                raise FileError("its OnionTrace logs no events: generate the network with --events")
            # This is the last line of a process, so its absence may mean that the file is
            # truncated.
            if process.expected_final_state is None:
                raise FileError(
                    f"its {process.program} has no expected_final_state: write "
                    "`expected_final_state: running`, otherwise Shadow expects it to end"
                )
        return _Parts(
            tor=self._tor_options(name, tors[0]) if tors else None,
            tgen=self._tgen_graph(name, tgens[0]) if tgens else None,
        )

    def _tor_options(self, name: str, process: ProcessEntry) -> Options:
        """Return Tor's options from its file of defaults, its torrc and its command line."""
        arguments = _pairs(process.args)
        pairs: list[tuple[str, str]] = []
        for option in _TORRC_ARGUMENTS:
            path = arguments.pop(option, None)
            if path is None:
                raise TorrcError(
                    f"its Tor is called without {option}: specify its files with --defaults-torrc "
                    "and "
                    "-f in the process's args"
                )
            pairs += read_options(path, lambda one: self._text_at(self._files.resolve(name, one)))
        pairs += [(key.lstrip("-").lower(), value) for key, value in arguments.items()]
        options = Options(tuple(pairs))
        if options.get("DataDirectory") != ".":
            raise TorrcError(
                "its DataDirectory is not the host's own folder: set `DataDirectory .` in its torrc"
            )
        for option in _LIMITS:
            try:
                _bytes(options, option)
            except TorrcError as error:
                raise TorrcError(f"its {option}: {error}") from None
        for option in _FILE_OPTIONS:
            path = options.get(option)
            if path:
                self._files.resolve(name, path)
        return options

    def _tgen_graph(self, name: str, process: ProcessEntry) -> TgenGraph:
        if len(process.args) != 1:
            raise GraphError(
                "its TGen is called with other arguments than a graph: give only its path in the "
                "process's args"
            )
        place = self._files.resolve(name, process.args[0])
        graph = self._graph_at(place)
        try:
            graph.require_actions()
            if process.expected_final_state:
                graph.require_no_end()
            if not graph.is_server:
                graph.require_log()
                if not graph.has_models:
                    graph.require_measurable()
        except GraphError as error:
            raise GraphError(f"{place}: {error}") from None
        for attribute in MODEL_PATHS:
            for value in graph.values(attribute):
                path = self._files.resolve(name, value)
                if not self._graph_at(path).is_model:
                    raise GraphError(
                        f"{path} is not a Markov model: specify a file with a vertex called start"
                    )
        if graph.has_models and not graph.has_timeouts:
            paths = [self._files.resolve(name, one) for one in graph.values("packetmodelpath")]
            endless = [path for path in paths if not self._graph_at(path).ends]
            if endless or not paths:
                model = endless[0] if endless else "TGen's own packet model"
                raise GraphError(
                    f"{place}: its streams never end: {model} has no observation 'F', and there is "
                    "no 'timeout'; set the attribute timeout of its streams"
                )
        return graph

    def _read_graph(self, path: str) -> TgenGraph:
        try:
            return read_tgen_graph(self._files.content(path))
        except GraphError as error:
            raise GraphError(f"{path}: {error}") from None

    def _voted(self, flag: str) -> set[str]:
        """Return the fingerprints of the relays that authorities always give a flag."""
        listed = (
            parts.tor.get(f"TestingDirAuthVote{flag}") or ""
            for parts in self._parts.values()
            if parts.tor is not None
        )
        return {_fingerprint(one) for line in listed for one in line.split(",")} - {""}

    def _role(self, name: str, parts: _Parts, guards: set[str], exits: set[str]) -> Role | None:
        tor, tgen = parts.tor, parts.tgen
        if tor is None:
            return "server" if tgen is not None and tgen.is_server else None
        if tor.get("HiddenServiceDir") is not None:
            return "onion-service" if tgen is not None and tgen.is_server else None
        or_port = tor.get("ORPort") or "0"
        if or_port.split()[0] != "0":
            if tgen is not None:
                return None
            if tor.is_on("AuthoritativeDirectory"):
                return "authority"
            own = self._identity(name)
            if own in guards:
                return "exitguard" if own in exits else "guard"
            return "exit" if own in exits else "middle"
        if tgen is None or tgen.is_server:
            return None
        if tgen.has_models:
            return "markov-client"
        return "perf-client"

    def _identity(self, name: str) -> str | None:
        """Return a relay's fingerprint from its own file, or None if the file has none."""
        path = f"{self._files.host_folder(name)}/{RELAY_KEYS[0]}"
        try:
            words = self._text_at(path).split() if path in self._files else []
        except FileError:
            words = []
        found = _fingerprint(words[1]) if len(words) == 2 else ""
        return found if len(found) == 40 else None

    def _key_problems(self, name: str, role: Role, parts: _Parts) -> Iterator[str]:
        """Yield missing and damaged files that a host of this role needs."""
        folder = self._files.host_folder(name)
        wanted: Sequence[str] = ()
        if parts.tor is not None and role == "onion-service":
            service = (parts.tor.get("HiddenServiceDir") or "").strip('"')
            wanted = [f"{service}/{key}" for key in SERVICE_KEYS]
            hostname = f"{folder}/{service}/{SERVICE_KEYS[0]}"
            if hostname in self._files:
                self._services[name] = self._text_at(hostname).strip()
        elif role == "authority":
            wanted = AUTHORITY_KEYS
        elif role in RELAY_ROLES:
            wanted = RELAY_KEYS
        missing = [path for path in wanted if f"{folder}/{path}" not in self._files]
        if missing:
            yield f"without its keys: {folder}/{missing[0]} is missing"
        else:
            yield from self._damaged(f"{folder}/{path}" for path in wanted)
        if not missing and role in RELAY_ROLES:
            if self._identity(name) is None:
                yield f"{folder}/{RELAY_KEYS[0]} holds no fingerprint"
            yield from self._expired(f"{folder}/keys/ed25519_signing_cert")
        if parts.tgen is not None:
            self._peers[name] = parts.tgen.peers()
            if role in ("markov-client", "perf-client") and not self._peers[name]:
                yield "its TGen has no peers to stream with: set the attribute peers of its start"

    def _damaged(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield damaged secret keys. Tor would replace them and thus run a different host."""
        for path in paths:
            kind = _SECRET_KEYS.get(posixpath.basename(path))
            if kind is not None and not kind(self._files.content(path)):
                yield f"{path} is not a complete secret key: Tor would generate another"

    def _expired(self, path: str) -> Iterator[str]:
        """Yield a problem if Tor would replace a signing key at its start."""
        if path not in self._files:
            return
        try:
            expires_unix_s = signing_key_expires_unix_s(self._files.content(path))
        except ValueError as error:
            yield f"{path}: {error}"
            return
        if expires_unix_s <= self._end_unix_s:
            yield f"{path} has expired when the simulation ends, in 2000: generate it with faketime"

    def _links(self, entry: HostEntry) -> tuple[int | None, int | None]:
        """Return the bandwidth up and down in bit/s: the host's own, else its node's."""
        node = self._graph.nodes[entry.network_node_id]
        return entry.bandwidth_up or node.up_bit_per_s, entry.bandwidth_down or node.down_bit_per_s

    def _host(
        self, name: str, entry: HostEntry, role: Role, parts: _Parts, links: tuple[int, int]
    ) -> TornetHost:
        rate, burst = (
            _bytes(parts.tor, option) if parts.tor is not None else None for option in _LIMITS
        )
        peers = self._peers.get(name, set())
        return TornetHost(
            role=role,
            uses_onion_services=bool(peers) and all(peer.endswith(".onion") for peer in peers),
            node=entry.network_node_id,
            address=entry.ip_addr,
            up_bit_per_s=links[0],
            down_bit_per_s=links[1],
            rate_bytes_per_s=rate,
            burst_bytes=burst,
            fingerprint=self._identity(name) if role in RELAY_ROLES else None,
            processes=tuple(
                TornetProcess(
                    program=process.program,
                    arguments=process.args,
                    start_ms=process.start_time,
                    environment=process.environment,
                    runs_to_end=process.expected_final_state is True,
                )
                for process in entry.processes
            ),
        )

    def _addresses(self) -> Iterator[str]:
        """Yield addresses that two hosts share."""
        seen: dict[str, str] = {}
        for name, entry in self._config.hosts.items():
            if entry.ip_addr is None:
                continue
            if entry.ip_addr in seen:
                yield (
                    f"host {name}: has the address {entry.ip_addr} of host {seen[entry.ip_addr]}: "
                    "change its ip_addr"
                )
            seen.setdefault(entry.ip_addr, name)

    def _authority_problems(self) -> Iterator[str]:
        """Yield problems if the authorities that every Tor trusts do not exist or are not valid."""
        told = {
            tuple(parts.tor.all("DirServer") + parts.tor.all("DirAuthority")): name
            for name, parts in self._parts.items()
            if parts.tor is not None
        }
        if len(told) > 1:
            first, other = sorted(told.values())[:2]
            yield (
                f"hosts {first} and {other} trust different authorities: give both the same lines "
                "DirServer"
            )
            return
        try:
            trusted = {one.nickname: one for lines in told for one in map(_authority, lines)}
        except ValueError as error:
            yield str(error)
            return
        for name in sorted(trusted.keys() - self._config.hosts.keys()):
            yield (
                f"the authority {name} that every Tor trusts is not a host: remove its line "
                f"DirServer, or add the host to {CONFIGURATION}"
            )
        authorities = [name for name, host in self.hosts.items() if host.role == "authority"]
        if not authorities:
            yield (
                "the network has no directory authority: set AuthoritativeDirectory 1 for one host"
            )
        for role in ("guard", "exit"):
            if not {role, "exitguard"} & {host.role for host in self.hosts.values()}:
                yield (
                    f"no relay is voted {role} by TestingDirAuthVote{role.capitalize()}: list the "
                    "fingerprints of some relays in the authorities' torrc"
                )
        for name in authorities:
            if name not in trusted:
                yield (
                    f"host {name}: an authority that no Tor trusts: it has no line DirServer; "
                    "add one for all hosts"
                )
                continue
            yield from (
                f"host {name}: {problem}"
                for problem in self._authority_mismatches(name, trusted[name])
            )

    def _authority_mismatches(self, name: str, told: _Authority) -> Iterator[str]:
        host = self.hosts[name]
        if told.fingerprint != host.fingerprint:
            yield "its keys belong to another network: DirServer has another fingerprint"
        if host.address != told.address:
            yield f"its address is not {told.address}, as in DirServer: set ip_addr to that"
        path = f"{self._files.host_folder(name)}/keys/authority_certificate"
        try:
            certificate = read_authority_certificate(self._text_at(path))
        except (ValueError, FileError) as error:
            yield f"{path} is not a key certificate: {error}"
            return
        yield from self._certificate_problems(path, certificate, told)

    def _certificate_problems(
        self, path: str, certificate: AuthorityCertificate, told: _Authority
    ) -> Iterator[str]:
        if certificate.identity != told.identity:
            yield f"{path} belongs to another network: DirServer has another v3ident"
        if not certificate.holds(EPOCH_UNIX_S, self._end_unix_s):
            yield (
                f"{path} is not valid during the simulation, which starts on 2000-01-01: "
                "generate it with faketime, as tornettools does"
            )

    def _relay_problems(self) -> Iterator[str]:
        """Yield problems if the authorities measure or vote on relays that do not exist."""
        relays = {host.fingerprint: name for name, host in self.hosts.items() if host.fingerprint}
        measured = {
            self._files.resolve(name, path)
            for name, parts in self._parts.items()
            if self.hosts[name].role == "authority"
            and parts.tor is not None
            and (path := parts.tor.get("V3BandwidthsFile"))
        }
        problems = [one for path in sorted(measured) for one in self._unmeasured(path, relays)]
        yield from problems
        if problems:
            return
        for flag in ("Guard", "Exit"):
            for stranger in sorted(self._voted(flag) - relays.keys())[:1]:
                yield (
                    f"TestingDirAuthVote{flag} lists {stranger}, which is not a relay's "
                    "fingerprint: "
                    "it belongs to another network"
                )

    def _unmeasured(self, path: str, relays: Mapping[str, str]) -> Iterator[str]:
        """Yield differences between a bandwidth file and the network's relays and authorities.

        relays: fingerprint -> name.
        """
        listed = {_fingerprint(found[1]) for found in _MEASURED.finditer(self._text_at(path))}
        missing = sorted(name for fingerprint, name in relays.items() if fingerprint not in listed)
        strangers = sorted(listed - relays.keys())
        if missing:
            more = f", nor {len(missing) - 1} more" if len(missing) > 1 else ""
            yield (
                f"{path} does not list host {missing[0]}{more}: "
                "it is truncated, or belongs to another network"
            )
        elif strangers:
            yield (
                f"{path} lists {strangers[0]}, which is not a host's: the file belongs to "
                "another network"
            )

    def _peer_problems(self) -> Iterator[str]:
        """Yield peers that are unreachable."""
        reachable = self._config.hosts.keys() | set(self._services.values())
        for name, peers in self._peers.items():
            for peer in sorted(peers - reachable)[:1]:
                yield (
                    f"host {name}: its peer {show(peer)} is neither a host nor an onion service: "
                    "correct the attribute peers"
                )


def _some(hosts: Sequence[str]) -> str:
    """Return the first host's name and how many more there are, for messages."""
    return f"host {hosts[0]}" + (f" and {len(hosts) - 1} more" if len(hosts) > 1 else "")


def _pairs(words: Sequence[str]) -> dict[str, str]:
    """Return a Tor's command line as option -> value. Raises TorrcError for any other form."""
    if len(words) % 2 or not all(word.startswith("-") for word in words[::2]):
        raise TorrcError(
            "its Tor is called with other arguments than options and their values: remove them "
            "from the process's args"
        )
    return dict(zip(words[::2], words[1::2], strict=True))


def _mode(words: Sequence[str]) -> str:
    """Return OnionTrace's mode. Keys and values have any case (its oniontrace-config.c)."""
    given = dict(word.lower().split("=", 1) for word in words if "=" in word)
    return given.get("mode", "log")


def _fingerprint(text: str) -> str:
    return text.strip().lstrip("$").replace(" ", "").upper()


def _authority(line: str) -> _Authority:
    """Parse a DirServer line: nickname, flags, address:port, fingerprint in ten groups.

    Raises:
        ValueError: it is not such a line.
    """
    words = line.split()
    flags = dict(word.lower().split("=", 1) for word in words[1:] if "=" in word)
    rest = [word for word in words[1:] if "=" not in word]
    fingerprint = _fingerprint("".join(rest[1:]))
    if len(rest) < 2 or ":" not in rest[0] or len(fingerprint) != 40 or "v3ident" not in flags:
        raise ValueError(
            f"invalid line DirServer: {show(line)}; write nickname, v3ident, "
            "address:port and fingerprint, as tornettools does"
        )
    return _Authority(
        nickname=words[0],
        identity=flags["v3ident"].upper(),
        address=rest[0].partition(":")[0],
        fingerprint=fingerprint,
    )


def _bytes(options: Options, name: str) -> int | None:
    """Return an option's value in bytes, or None if it has its default. Raises TorrcError."""
    text = (options.get(name) or "").strip('"')
    return parse_memory(text) if text else None
