"""Tor's configuration files of a run: conf/*.torrc shared by roles, and one torrc for each host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from analysis.formats.files import HOST_TEMPLATES
from onionlab.network.layout import Host, Network
from onionlab.paths import shipped
from onionlab.rundir.keys import AuthorityKeys, RelayKeys

FRAGMENTS = "configs/tor"
OR_PORT = 9111
DIR_PORT = 9112
ONION_SERVICE_FOLDER = "hs"
"""Of a host: what configs/tor/onion-service.torrc names as HiddenServiceDir."""
BANDWIDTH_FILE = f"{HOST_TEMPLATES}/bwauthority/v3bw"

# Tor takes a bandwidth file for stale after a few days; it is dated to the simulated start.
_BANDWIDTH_FILE_TIME = 946684801
_AUTHORITY_WEIGHT = 1

_FRAGMENT_OF_ROLE = {
    "authority": ("relay", "authority"),
    "exitguard": ("relay", "exit"),
    "exit": ("relay", "exit"),
    "guard": ("relay", "non-exit"),
    "middle": ("relay", "non-exit"),
    "onion-service": ("client", "onion-service"),
    "client": ("client",),
}


def shared_files(
    root: Path,
    *,
    network: Network,
    authorities: Mapping[str, AuthorityKeys],
    relays: Mapping[str, RelayKeys],
    scheduler_lines: Iterable[str],
    consensus_params: Mapping[str, int],
    extra: Mapping[str, Mapping[str, Sequence[str]]],
    variants: Mapping[str, Mapping[str, str]],
) -> dict[str, bytes]:
    """Return the files of conf/ that hold Tor's options, keyed by relative path.

    extra: torrc options that the experiment adds for "all", "relay", "authority" and "client";
    variants: the options of each variant in use, each in a file of its own.
    """

    def fragment(name: str, *lines: str) -> bytes:
        text = shipped(root, f"{FRAGMENTS}/{name}.torrc").read_text()
        return (text + "".join(f"{line}\n" for line in lines)).encode()

    guards = network.by_role("guard", "exitguard")
    exits = network.by_role("exit", "exitguard")
    params = " ".join(f"{name}={value}" for name, value in sorted(consensus_params.items()))
    files = {
        "common": fragment(
            "common",
            *(
                _authority_line(host, authorities[host.name])
                for host in network.by_role("authority")
            ),
            *scheduler_lines,
            *option_lines(extra.get("all", {})),
        ),
        "relay": fragment("relay", *option_lines(extra.get("relay", {}))),
        "authority": fragment(
            "authority",
            "TestingDirAuthVoteGuard " + ",".join(relays[host.name].fingerprint for host in guards),
            "TestingDirAuthVoteExit " + ",".join(relays[host.name].fingerprint for host in exits),
            *([f"ConsensusParams {params}"] if params else []),
            *option_lines(extra.get("authority", {})),
        ),
        "exit": fragment("exit"),
        "non-exit": fragment("non-exit"),
        "client": fragment("client", *option_lines(extra.get("client", {}))),
    }
    if network.by_role("onion-service"):
        files["onion-service"] = fragment("onion-service")
    for name, options in variants.items():
        text = "".join(f"{option} {value}\n" for option, value in options.items())
        files[f"variant.{name}"] = f"# Variant {name}.\n{text}".encode()
    return {f"conf/tor.{name}.torrc": content for name, content in files.items()} | {
        # Names of simulated hosts are resolved from the engine's hosts file; this satisfies Tor.
        "conf/resolv.conf": b"nameserver 127.0.0.1\n"
    }


def host_files(host: Host, *, variant: str, own: Iterable[str] = ()) -> dict[str, bytes]:
    """Return one host's torrc-defaults (what it shares) and torrc (what is its own).

    own: further lines of its torrc.
    """
    includes = ["common", *_FRAGMENT_OF_ROLE[host.role], f"variant.{variant}"]
    folder = f"{HOST_TEMPLATES}/{host.name}"
    return {
        f"{folder}/torrc-defaults": "".join(
            f"%include ../../../conf/tor.{name}.torrc\n" for name in includes
        ).encode(),
        f"{folder}/torrc": "".join(
            f"{line}\n" for line in (f"Nickname {host.name}", f"Address {host.address}", *own)
        ).encode(),
    }


def bandwidth_file(
    network: Network,
    authorities: Mapping[str, AuthorityKeys],
    relays: Mapping[str, RelayKeys],
    *,
    dedicated_middles: bool,
) -> bytes:
    """Return the file from which authorities vote on weights: a relay weighs what it carries.

    dedicated_middles: multiply the weights of all middles by one factor, so large that guards and
    exits are both scarce by dir-spec's rules. Then Tor gives guards and exits no share of the
    middle position, and the middles alone carry it; among the middles weights stay proportional.
    """
    weight_kib_per_s = {
        host.name: max(1, round(network.carries_bit_per_s(host) / 8192)) for host in network.relays
    }
    middles = {host.name for host in network.by_role("middle")}
    if dedicated_middles and middles:
        others = sum(weight for name, weight in weight_kib_per_s.items() if name not in middles)
        # Scarce means less than a third of all (dir-spec, "Computing Bandwidth Weights"): with
        # the middles at three times the rest, guards and exits together are a quarter.
        factor = max(1.0, 3 * others / sum(weight_kib_per_s[name] for name in middles))
        for name in middles:
            weight_kib_per_s[name] = max(1, round(weight_kib_per_s[name] * factor))
    lines = [str(_BANDWIDTH_FILE_TIME)]
    for host in network.by_role("authority"):
        lines.append(_weight_line(authorities[host.name].fingerprint, _AUTHORITY_WEIGHT, host))
    for host in network.relays:
        lines.append(_weight_line(relays[host.name].fingerprint, weight_kib_per_s[host.name], host))
    return ("\n".join(lines) + "\n").encode()


def _weight_line(fingerprint: str, weight: int, host: Host) -> str:
    return f"node_id=${fingerprint}\tbw={weight}\tnick={host.name}"


def _authority_line(host: Host, keys: AuthorityKeys) -> str:
    return (
        f"DirAuthority {host.name} v3ident={keys.v3_identity} orport={OR_PORT} "
        f"{host.address}:{DIR_PORT} {keys.fingerprint}"
    )


def option_lines(given: Mapping[str, Sequence[str]]) -> list[str]:
    """Return torrc's lines: each option once for each of its values."""
    return [f"{name} {value}" for name, values in given.items() for value in values]
