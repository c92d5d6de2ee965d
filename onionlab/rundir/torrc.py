"""Generate Tor's configuration: conf/*.torrc, which hosts share, and two files for each host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from analysis.formats.files import HOST_TEMPLATES
from onionlab.experiment.settings import TorSettings
from onionlab.experiment.tor_options import (
    COMMON,
    FRAGMENTS,
    HostOptions,
    Layer,
    Options,
    default_layers,
    experiment_layers,
    groups_of,
    parameter_options,
    parse_options,
    scheduler_options,
)
from onionlab.experiment.tor_parameters import REPLACED_LISTS
from onionlab.network.layout import Host, Network
from onionlab.programs.tor.variants import TorVariant
from onionlab.rundir.keys import RelayKeys

OR_PORT = 9111
DIR_PORT = 9112
ONION_SERVICE_FOLDER = "hs"
"""The HiddenServiceDir of a host, as in configs/tor/onion-service.torrc."""
BANDWIDTH_FILE = f"{HOST_TEMPLATES}/bwauthority/v3bw"

# Tor considers a bandwidth file stale after a few days, so use the simulated start as its time.
_BANDWIDTH_FILE_TIME = 946684801
_AUTHORITY_WEIGHT = 1


class TorrcFiles:
    """The torrc files of a run: the files in conf/, which hosts share, and two files for each host.

    A host's Tor reads files in this order: the common file, the files of its role, the file of its
    variant, the files of the experiment. An option that the experiment sets is appended to the
    common file or to the file of a role. If a file that Tor reads later may set the same option,
    the option goes into a file of the experiment instead, so that it has precedence. The options of
    `tor.scheduler` are always in the common file, so that a variant's options override them.

    Attributes:
        shared: path -> content of the files in conf/.
    """

    def __init__(
        self,
        network: Network,
        keys: Mapping[str, RelayKeys],
        *,
        tor: TorSettings,
        variants: Collection[TorVariant],
        defaults: Mapping[str, str],
    ) -> None:
        """Generate the shared files.

        keys: name of a relay or authority -> its keys. variants: all variants in use. defaults:
        name of a file in configs/tor -> the lines of the file that this run uses.
        """
        self._tor = tor
        self._defaults = defaults
        later = [
            name for text in defaults if text != COMMON for name in parse_options(defaults[text])
        ]
        later += [name for variant in variants for name in variant.torrc]
        contested = {name.lstrip("+/").casefold() for name in later}

        def vote(position: str, *roles: str) -> str:
            fingerprints = (keys[host.name].fingerprint for host in network.by_role(*roles))
            return f"TestingDirAuthVote{position} {','.join(fingerprints)}"

        generated = {
            COMMON: [
                *(_authority_line(h, keys[h.name]) for h in network.by_role("authority")),
                *option_lines(scheduler_options(tor.scheduler)),
            ],
            "authority": [
                vote("Guard", "guard", "exitguard"),
                vote("Exit", "exit", "exitguard"),
                *option_lines(parameter_options(tor.consensus_params)),
            ],
        }
        experiment: dict[str, Options] = dict(tor.torrc)
        files = {}
        for name in {
            COMMON: None,
            **dict.fromkeys(n for names in FRAGMENTS.values() for n in names),
        }:
            if name == "onion-service" and not network.by_role(name):
                continue
            own = experiment.get("all" if name == COMMON else name, {})
            kept = {k: v for k, v in own.items() if k.casefold() not in contested}
            lines = [*generated.get(name, ()), *replacing_lines(kept)]
            files[name] = defaults[name].encode() + as_file(lines)
        for variant in variants:
            options = {name: (value,) for name, value in variant.torrc.items()}
            files[f"variant.{variant.name}"] = as_file(
                [f"# Variant {variant.name}.", *replacing_lines(options)]
            )
        for group, own in experiment.items():
            last = {name: values for name, values in own.items() if name.casefold() in contested}
            if last:
                files[f"experiment.{group}"] = as_file(replacing_lines(last))
        self.shared = {f"conf/tor.{name}.torrc": content for name, content in files.items()} | {
            # The names of simulated hosts are resolved with the engine's hosts file. This
            # resolv.conf exists only because Tor requires such a file.
            "conf/resolv.conf": b"nameserver 127.0.0.1\n"
        }

    def host_files(self, host: Host, variant: TorVariant, own: Iterable[str]) -> dict[str, bytes]:
        """Return a host's torrc-defaults (shared options) and torrc (its own options).

        own: further lines of the torrc.
        """
        names = [COMMON, *FRAGMENTS[host.role], f"variant.{variant.name}"]
        names += [f"experiment.{group}" for group in groups_of(host.role)]
        paths = [path for name in names if (path := f"conf/tor.{name}.torrc") in self.shared]
        folder = f"{HOST_TEMPLATES}/{host.name}"
        return {
            f"{folder}/torrc-defaults": as_file(f"%include ../../../{path}" for path in paths),
            f"{folder}/torrc": as_file([f"Nickname {host.name}", f"Address {host.address}", *own]),
        }

    def options(self, role: str, variant: TorVariant, own: Iterable[str]) -> HostOptions:
        """Return a host's options, together with the files that set them.

        Options that contain names of hosts are omitted.
        """
        return HostOptions(
            role,
            variant,
            network=default_layers(role, self._defaults),
            experiment=experiment_layers(role, self._tor, variant),
            own=[Layer("its own torrc", parse_options("\n".join(own)), file="torrc")],
        )


def bandwidth_file(
    network: Network, keys: Mapping[str, RelayKeys], *, dedicated_middles: bool
) -> bytes:
    """Return the bandwidth file from which authorities vote. A relay's weight is its capacity.

    dedicated_middles: whether to multiply the weights of all middle relays by one factor, so that
    guards and exits are both scarce by dir-spec's rules. As a result, Tor never selects guards and
    exits for the middle position (case 2a of dir-spec). Case 2b applies if guards and exits differ
    in weight by at most the weight of exit-guards, as in the experiment ``quick``. Authorities then
    write no bandwidth-weights, and clients select a middle relay among all relays by their weights.
    The weights of middle relays stay proportional to their capacities.
    """
    weight_kib_per_s = {
        host.name: max(1, round(network.carries_bit_per_s(host) / 8192)) for host in network.relays
    }
    middles = {host.name for host in network.by_role("middle")}
    if dedicated_middles and middles:
        others = sum(weight for name, weight in weight_kib_per_s.items() if name not in middles)
        # Scarce means less than a third of the total (dir-spec, "Computing Bandwidth Weights"). If
        # the middle relays have three times the weight of all other relays, the other relays have a
        # quarter of the total.
        factor = max(1.0, 3 * others / sum(weight_kib_per_s[name] for name in middles))
        for name in middles:
            weight_kib_per_s[name] = max(1, round(weight_kib_per_s[name] * factor))
    authorities = {host.name: _AUTHORITY_WEIGHT for host in network.by_role("authority")}
    weights = authorities | weight_kib_per_s
    lines = (f"node_id=${keys[n].fingerprint}\tbw={w}\tnick={n}" for n, w in weights.items())
    return as_file([str(_BANDWIDTH_FILE_TIME), *lines])


def _authority_line(host: Host, keys: RelayKeys) -> str:
    return (
        f"DirAuthority {host.name} v3ident={keys.v3_identity} orport={OR_PORT} "
        f"{host.address}:{DIR_PORT} {keys.fingerprint}"
    )


def option_lines(options: Options) -> list[str]:
    """Return the lines of a torrc, one for each value of each option."""
    return [f"{name} {value}" for name, values in options.items() for value in values]


def replacing_lines(options: Options) -> list[str]:
    """Return the lines of a torrc that set options and replace their values in earlier files."""
    lines = []
    for name, values in options.items():
        if name.casefold() in REPLACED_LISTS:
            # Tor appends the lines of these options to earlier lines. A line with a slash and the
            # option's name removes the earlier lines.
            lines.append(f"/{name}")
        lines += option_lines({name: values})
    return lines


def as_file(lines: Iterable[str]) -> bytes:
    """Return the content of a file with these lines."""
    return "".join(f"{line}\n" for line in lines).encode()
