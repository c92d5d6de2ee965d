"""Check a tornet, a directory that ``tornettools generate`` wrote.

Each host has to be complete, and the files have to belong to one network.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from analysis.formats.files import HOST_TEMPLATES
from onionlab.tornet.certificates import read_authority_certificate
from onionlab.tornet.host_files import FileError, TornetFiles
from onionlab.tornet.hosts import CERTIFICATE, FINGERPRINT, HostFiles, HostReader, parse_fingerprint
from onionlab.tornet.model import EPOCH_UNIX_S, TornetHost
from onionlab.tornet.path_graph import PathGraph
from onionlab.tornet.shadow_config import CONFIGURATION, ShadowConfig
from onionlab.yamlfile.units import show

# A folder that has at least one of these files is the folder of a host.
_HOST_FILES = ("torrc-defaults", "torrc", "tgenrc.graphml", FINGERPRINT, "hostname")

# The line of a relay in a bandwidth file, including the line feed, so that a truncated last line
# does not match.
_MEASURED = re.compile(
    r"^(?=(?:[^\n]*[ \t])?bw=[0-9])(?:[^\n]*[ \t])?node_id=\$?([0-9A-Fa-f]{40})(?:[ \t][^\n]*)?\n",
    re.MULTILINE,
)


class _Authority(NamedTuple):
    """An authority's properties. Messages show the names of these attributes."""

    v3ident: str
    address: str | None
    fingerprint: str | None


class Checker:
    """Checks all hosts of a configuration. Each instance can be used once."""

    def __init__(
        self, config: ShadowConfig, files: TornetFiles, graph: PathGraph, stop_ms: int
    ) -> None:
        self.hosts: dict[str, TornetHost] = {}
        """Name -> host, for the hosts that could be parsed. `problems` fills this."""
        self._config = config
        self._files = files
        self._graph = graph
        self._end_unix_s = EPOCH_UNIX_S + stop_ms / 1000
        self._reader = HostReader(files, self._end_unix_s)
        self._read: dict[str, HostFiles] = {}

    def problems(self) -> list[str]:
        """Return a sentence for each problem. If there is no problem, `hosts` contains every host.

        Relations between hosts are checked only if each host is complete, so that one missing file
        does not cause many messages.
        """
        found = [*self._orphaned_folders(), *self._executables(), *self._host_problems()]
        return found or [
            *self._authority_problems(),
            *self._list_problems(),
            *self._peer_problems(),
        ]

    def _orphaned_folders(self) -> Iterator[str]:
        """Yield a problem if there is a folder of a host that the configuration does not contain.

        In this case, the configuration may be truncated. A truncated file can still be valid YAML.
        """
        for path in sorted(self._files.paths):
            parent, name = posixpath.split(path)
            if parent.startswith(f"{HOST_TEMPLATES}/") and name in _HOST_FILES:
                host = parent.removeprefix(f"{HOST_TEMPLATES}/").partition("/")[0]
                if host not in self._config.hosts:
                    yield (
                        f"{path} does not belong to a host of {CONFIGURATION}: that file is "
                        "truncated, or the folder is obsolete and should be removed"
                    )
                    return

    def _executables(self) -> Iterator[str]:
        """Yield a problem for each program that has several executables: a run can use only one."""
        hosts: dict[str, dict[str, list[str]]] = {}
        for name, entry in self._config.hosts.items():
            for process in entry.processes:
                path = posixpath.normpath(process.path)
                hosts.setdefault(process.program, {}).setdefault(path, []).append(name)
        for program, by_path in hosts.items():
            if len(by_path) > 1:
                named = ", ".join(
                    f"{path} (host {first}{f' and {len(more)} more' if more else ''})"
                    for path, (first, *more) in by_path.items()
                )
                yield (
                    f"{CONFIGURATION} names {len(by_path)} executables of {program}, but a run "
                    f"would use one for all: {named}. Give all the same path. To run another Tor "
                    "on some hosts, use tor.variants and tor.deployment in the experiment"
                )

    def _host_problems(self) -> Iterator[str]:
        for name, entry in self._config.hosts.items():
            try:
                self._read[name] = self._reader.read(name, entry)
            except FileError as error:
                yield f"host {name}: {error}"
        guards, exits = self._voted("Guard"), self._voted("Exit")
        for name, host in self._read.items():
            role = host.role(guards, exits)
            node = self._graph.nodes[host.entry.network_node_id]
            up_bit_per_s = host.entry.bandwidth_up or node.up_bit_per_s
            down_bit_per_s = host.entry.bandwidth_down or node.down_bit_per_s
            if role is None:
                yield (
                    f"host {name}: its role is unknown: it is neither an authority, relay, onion "
                    "service or server nor a client with TGen's streams or models; remove it from "
                    f"{CONFIGURATION}, or give it the programs and the torrc of one of these"
                )
                continue
            for problem in self._reader.key_problems(host, role):
                yield f"host {name}: {problem}"
            if role in ("markov-client", "perf-client") and not host.peers:
                yield (
                    f"host {name}: its TGen has no peers to stream with: set the attribute peers "
                    "of its start"
                )
            if up_bit_per_s is None or down_bit_per_s is None:
                yield (
                    f"host {name}: neither it nor its node has a bandwidth: set bandwidth_up and "
                    f"bandwidth_down in {CONFIGURATION}"
                )
                continue
            self.hosts[name] = host.model(role, up_bit_per_s, down_bit_per_s)

    def _voted(self, flag: str) -> set[str]:
        """Return the fingerprints of the relays to which authorities always give ``flag``."""
        lists = (host.option(f"TestingDirAuthVote{flag}") for host in self._read.values())
        return {parse_fingerprint(one) for listed in lists for one in listed.split(",")} - {""}

    def _authority_problems(self) -> Iterator[str]:
        """Yield problems with the authorities.

        All hosts have to trust exactly the existing authorities, and the authorities have to vote
        for guards and for exits.
        """
        trusting = {
            (*host.tor.all("DirServer"), *host.tor.all("DirAuthority")): name
            for name, host in self._read.items()
            if host.tor is not None
        }
        if len(trusting) > 1:
            first, other = sorted(trusting.values())[:2]
            yield (
                f"hosts {first} and {other} trust different authorities: give both the same lines "
                "DirServer"
            )
            return
        try:
            trusted = dict(_parse_authority(line) for lines in trusting for line in lines)
        except ValueError as error:
            yield str(error)
            return
        authorities = {name for name, host in self.hosts.items() if host.role == "authority"}
        if not authorities:
            yield "there is no directory authority: set AuthoritativeDirectory 1 for one host"
        for name in sorted(trusted.keys() - authorities):
            yield f"DirServer names {name}, which is not a host with AuthoritativeDirectory 1"
        for name in sorted(authorities - trusted.keys()):
            yield f"host {name}: an authority that no line DirServer names: add one for all hosts"
        for name in sorted(authorities & trusted.keys()):
            for problem in self._authority_mismatches(name, trusted[name]):
                yield f"host {name}: {problem}"
        for role in ("guard", "exit"):
            if not {role, "exitguard"} & {host.role for host in self.hosts.values()}:
                yield (
                    f"no relay is voted {role} by TestingDirAuthVote{role.capitalize()}: list the "
                    "fingerprints of some relays in the authorities' torrc"
                )

    def _authority_mismatches(self, name: str, trusted: _Authority) -> Iterator[str]:
        path = f"{self._files.host_folder(name)}/{CERTIFICATE}"
        try:
            identity, *valid_unix_s = read_authority_certificate(self._reader.text_at(path))
        except (ValueError, FileError) as error:
            yield f"{path} is not a key certificate: {error}"
            return
        host = self.hosts[name]
        own = _Authority(identity, host.address, host.fingerprint)
        for key, theirs, value in zip(own._fields, trusted, own, strict=True):
            if theirs != value:
                yield (
                    f"its {key} is {value}, but {theirs} in DirServer: they belong to two networks"
                )
        if valid_unix_s[0] > EPOCH_UNIX_S or self._end_unix_s >= valid_unix_s[1]:
            yield (
                f"{path} is not valid during the simulation, which starts on 2000-01-01: "
                "generate it with faketime, as tornettools does"
            )

    def _list_problems(self) -> Iterator[str]:
        """Yield a problem for each authority's list of relays that does not match the hosts."""
        relays = {host.fingerprint: name for name, host in self.hosts.items() if host.fingerprint}
        authorities = [name for name, host in self.hosts.items() if host.role == "authority"]
        named = [(name, self._read[name].option("V3BandwidthsFile")) for name in authorities]
        for path in sorted({self._files.resolve(name, path) for name, path in named if path}):
            found = _MEASURED.finditer(self._reader.text_at(path))
            listed = {parse_fingerprint(one[1]) for one in found}
            missing = sorted(relays[one] for one in relays.keys() - listed)
            if missing:
                more = f", nor {len(missing) - 1} more" if len(missing) > 1 else ""
                yield (
                    f"{path} does not list host {missing[0]}{more}: it is truncated, or belongs to "
                    "another network"
                )
            else:
                yield from _strangers(path, listed, relays)
        for flag in ("Guard", "Exit"):
            yield from _strangers(f"TestingDirAuthVote{flag}", self._voted(flag), relays)

    def _peer_problems(self) -> Iterator[str]:
        """Yield a problem for each shared address, and for each host with a nonexistent peer."""
        with_address = ((h.address, name) for name, h in self.hosts.items() if h.address)
        for address, group in itertools.groupby(sorted(with_address), key=lambda pair: pair[0]):
            names = [name for _, name in group]
            if len(names) > 1:
                yield f"hosts {' and '.join(names)} have one address, {address}: change an ip_addr"
        reachable = {*self._config.hosts, *(host.service for host in self._read.values())}
        for name, host in self._read.items():
            for peer in sorted(host.peers - reachable)[:1]:
                yield (
                    f"host {name}: its peer {show(peer)} is neither a host nor an onion service: "
                    "correct the attribute peers"
                )


def _strangers(source: str, listed: set[str], relays: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem if a list contains a fingerprint that belongs to no relay."""
    for stranger in sorted(listed - relays.keys())[:1]:
        yield (
            f"{source} lists {stranger}, which is not a relay's fingerprint: it belongs to another "
            "network"
        )


def _parse_authority(line: str) -> tuple[str, _Authority]:
    """Parse a DirServer line: nickname, flags, address:port, fingerprint in ten groups.

    Raises:
        ValueError: the line is not such a line.
    """
    nickname, *words = line.split() or [""]
    flags = dict(word.lower().split("=", 1) for word in words if "=" in word)
    rest = [word for word in words if "=" not in word]
    fingerprint = parse_fingerprint("".join(rest[1:]))
    if len(rest) < 2 or ":" not in rest[0] or len(fingerprint) != 40 or "v3ident" not in flags:
        raise ValueError(
            f"invalid line DirServer: {show(line)}; write nickname, v3ident, "
            "address:port and fingerprint, as tornettools does"
        )
    address = rest[0].partition(":")[0]
    return nickname, _Authority(flags["v3ident"].upper(), address, fingerprint)
