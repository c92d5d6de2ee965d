"""Generate Tor's configuration: conf/*.torrc for several roles, and one torrc for each host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from analysis.formats.files import HOST_TEMPLATES
from onionlab.experiment.schema import TorSettings
from onionlab.experiment.tor_options import (
    COMMON,
    FRAGMENTS,
    REPLACED_LISTS,
    Layer,
    Options,
    default_layers,
    experiment_layers,
    groups_of,
    keep_options,
    parameter_options,
    parse_options,
    read_defaults,
    scheduler_options,
)
from onionlab.network.layout import Host, Network
from onionlab.programs.tor.variants import TorVariant
from onionlab.rundir.keys import AuthorityKeys, RelayKeys

OR_PORT = 9111
DIR_PORT = 9112
ONION_SERVICE_FOLDER = "hs"
"""The HiddenServiceDir of a host, as in configs/tor/onion-service.torrc."""
BANDWIDTH_FILE = f"{HOST_TEMPLATES}/bwauthority/v3bw"

# Tor considers a bandwidth file stale after a few days, so use the simulated start as its time.
_BANDWIDTH_FILE_TIME = 946684801
_AUTHORITY_WEIGHT = 1


def shared_files(
    root: Path,
    *,
    network: Network,
    authorities: Mapping[str, AuthorityKeys],
    relays: Mapping[str, RelayKeys],
    tor: TorSettings,
    variants: Collection[TorVariant],
    known_options: Collection[str] | None,
) -> dict[str, bytes]:
    """Return the files of conf/ that contain Tor's options, keyed by relative path.

    variants: all variants in use; known_options: the options that their Tor supports, in lower
    case, or None for all options of the default files. An option of the experiment is written after
    the defaults for the same hosts. If a later file sets it as well, it goes to a separate file,
    which comes last.
    """
    defaults = keep_options(read_defaults(root), tor.consensus_params, known_options)
    contested = {
        name.lstrip("+/").casefold()
        for names in (
            *(parse_options(text).keys() for name, text in defaults.items() if name != COMMON),
            *(variant.torrc.keys() for variant in variants),
        )
        for name in names
    }
    experiment: dict[str, Options] = dict(tor.torrc)

    def fragment(name: str, *lines: str) -> bytes:
        own = experiment.get("all" if name == COMMON else name, {})
        kept = replacing_lines({k: v for k, v in own.items() if k.casefold() not in contested})
        return defaults[name].encode() + as_file([*lines, *kept])

    guards = network.by_role("guard", "exitguard")
    exits = network.by_role("exit", "exitguard")
    files = {
        COMMON: fragment(
            COMMON,
            *(
                _authority_line(host, authorities[host.name])
                for host in network.by_role("authority")
            ),
            *option_lines(scheduler_options(tor.scheduler)),
        ),
        "relay": fragment("relay"),
        "authority": fragment(
            "authority",
            "TestingDirAuthVoteGuard " + ",".join(relays[host.name].fingerprint for host in guards),
            "TestingDirAuthVoteExit " + ",".join(relays[host.name].fingerprint for host in exits),
            *option_lines(parameter_options(tor.consensus_params)),
        ),
        "exit": fragment("exit"),
        "non-exit": fragment("non-exit"),
        "client": fragment("client"),
    }
    if network.by_role("onion-service"):
        files["onion-service"] = fragment("onion-service")
    for variant in variants:
        options = {name: (value,) for name, value in variant.torrc.items()}
        files[f"variant.{variant.name}"] = as_file(
            [f"# Variant {variant.name}.", *replacing_lines(options)]
        )
    for group, own in experiment.items():
        last = {name: values for name, values in own.items() if name.casefold() in contested}
        if last:
            files[f"experiment.{group}"] = as_file(replacing_lines(last))
    return {f"conf/tor.{name}.torrc": content for name, content in files.items()} | {
        # The engine's hosts file resolves names of simulated hosts; this file only satisfies Tor.
        "conf/resolv.conf": b"nameserver 127.0.0.1\n"
    }


def shared_layers(
    root: Path,
    tor: TorSettings,
    known_options: Collection[str] | None,
    role: str,
    variant: TorVariant,
) -> list[Layer]:
    """Return the options of the files of `shared_files` that a host reads, the lowest layer first.

    Lines that name hosts are omitted.
    """
    voted = parameter_options(tor.consensus_params) if role == "authority" else {}
    defaults = keep_options(read_defaults(root), tor.consensus_params, known_options)
    return [
        *default_layers(role, defaults),
        *([Layer("tor.consensus_params", voted)] if voted else []),
        *experiment_layers(role, scheduler=tor.scheduler, variant=variant, torrc=tor.torrc),
    ]


def host_files(
    host: Host, *, variant: str, shared: Collection[str], own: Iterable[str] = ()
) -> dict[str, bytes]:
    """Return one host's torrc-defaults (shared options) and torrc (its own options).

    shared: paths of the files of `shared_files`; own: further lines of its torrc.
    """
    wanted = [COMMON, *FRAGMENTS[host.role], f"variant.{variant}"]
    wanted += [f"experiment.{group}" for group in groups_of(host.role)]
    paths = [path for name in wanted if (path := f"conf/tor.{name}.torrc") in shared]
    folder = f"{HOST_TEMPLATES}/{host.name}"
    return {
        f"{folder}/torrc-defaults": as_file(f"%include ../../../{path}" for path in paths),
        f"{folder}/torrc": as_file([f"Nickname {host.name}", f"Address {host.address}", *own]),
    }


def bandwidth_file(
    network: Network,
    authorities: Mapping[str, AuthorityKeys],
    relays: Mapping[str, RelayKeys],
    *,
    dedicated_middles: bool,
) -> bytes:
    """Return the file from which authorities vote: a relay's weight is its capacity.

    dedicated_middles: multiply the weights of all middle relays by one factor that makes guards and
    exits both scarce by dir-spec's rules. Tor then assigns guards and exits no share of the middle
    position, so only middle relays carry it; their weights stay proportional.
    """
    weight_kib_per_s = {
        host.name: max(1, round(network.carries_bit_per_s(host) / 8192)) for host in network.relays
    }
    middles = {host.name for host in network.by_role("middle")}
    if dedicated_middles and middles:
        others = sum(weight for name, weight in weight_kib_per_s.items() if name not in middles)
        # Scarce means less than a third of the total (dir-spec, "Computing Bandwidth Weights"). If
        # the middle relays have three times the weight of the rest, guards and exits together have
        # a quarter.
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


def option_lines(options: Options) -> list[str]:
    """Return the lines of a torrc, one for each value of each option."""
    return [f"{name} {value}" for name, values in options.items() for value in values]


def replacing_lines(options: Options) -> list[str]:
    """Return the lines of a torrc that replace settings of earlier files."""
    lines = []
    for name, values in options.items():
        if name.casefold() in REPLACED_LISTS:
            # Tor appends the lines of a list to earlier ones; a slash clears the list.
            lines.append(f"/{name}")
        lines += option_lines({name: values})
    return lines


def as_file(lines: Iterable[str]) -> bytes:
    """Return the content of a file with these lines."""
    return "".join(f"{line}\n" for line in lines).encode()
