"""Read the torrc options of an imported network's hosts, and find conflicts with an experiment."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator, Mapping, Sequence

from analysis.formats.files import HOST_TEMPLATES
from onionlab.errors import UserError
from onionlab.experiment.tor_checks import (
    describe_ignored,
    find_ignored,
    find_without_service,
    parameter_settings,
    voted_parameters,
)
from onionlab.experiment.tor_options import (
    NAMES_OF_HOSTS,
    HostOptions,
    Layer,
    Setting,
    experiment_layers,
    groups_of,
    resolve_options,
)
from onionlab.experiment.tornettools import TornetTor
from onionlab.programs.tor.variants import TorVariant
from onionlab.tornet.model import TornetHost
from onionlab.tornet.torrc_options import read_lines


def host_options(
    tor: TornetTor,
    hosts: Mapping[str, TornetHost],
    variants_by_host: Mapping[str, TorVariant],
    files: Mapping[str, bytes],
) -> list[HostOptions]:
    """Return the options of all hosts with Tor. Hosts with equal options share one entry.

    files: the network's files, by path.
    """
    found: dict[object, HostOptions] = {}
    for name, variant in variants_by_host.items():
        host = hosts[name]
        (process,) = (one for one in host.processes if one.program == "tor")
        arguments = dict(zip(process.arguments[::2], process.arguments[1::2], strict=True))
        paths = [arguments.pop(option) for option in ("--defaults-torrc", "-f")]
        folder = f"{HOST_TEMPLATES}/{name}"
        contents = [files[posixpath.normpath(f"{folder}/{path}")] for path in paths]
        given = {option.lstrip("-"): (value,) for option, value in arguments.items()}
        alike = sorted(one for one in given.items() if one[0].casefold() not in NAMES_OF_HOSTS)
        key = (host.role, variant.name, *contents, *alike)
        if key in found:
            continue
        network, own = (
            [*_layers(folder, path, files, file)]
            for path, file in zip(paths, ("torrc-defaults", "torrc"), strict=True)
        )
        found[key] = HostOptions(
            role=host.role,
            variant=variant,
            network=network,
            experiment=experiment_layers(host.role, tor, variant),
            own=[*own, Layer("its command line", given, file="command line")],
        )
    return list(found.values())


def require_effect(tor: TornetTor, hosts: Sequence[HostOptions]) -> None:
    """Raise UserError if an option of the experiment contradicts the network or has no effect."""
    for host in hosts:
        _require_variant(host)
        _require_above(host)
        if "client" in groups_of(host.role):
            _require_port(host, tor.torrc.client)
    for place, message in find_without_service(hosts):
        raise UserError(f"{'.'.join(place)}: {message}")
    authority = next((one.resolved for one in hosts if one.role == "authority"), {})
    voted = parameter_settings(voted_parameters(authority))
    for place, setting in find_ignored(tor, hosts, voted):
        # Options of variants were checked when the experiment was loaded.
        if not setting.source.startswith("variant "):
            raise UserError(f"{'.'.join(place)}: {describe_ignored(setting)}")


def _layers(
    folder: str, path: str, files: Mapping[str, bytes], file_of_tor: str
) -> Iterator[Layer]:
    def full(relative: str) -> str:
        return posixpath.normpath(f"{folder}/{relative}")

    lines = read_lines(path, lambda one: files[full(one)].decode())
    for file, group in itertools.groupby(lines, key=lambda line: line[0]):
        options: dict[str, tuple[str, ...]] = {}
        for _, name, value in group:
            if name.startswith("/"):
                options.pop(name[1:], None)
            options[name] = (*options.get(name, ()), value)
        yield Layer(full(file), options, file_of_tor)


def _require_variant(host: HostOptions) -> None:
    """Raise UserError if a variant's option would silently replace a value set by the network."""
    given = resolve_options(host.network)
    asked = resolve_options(host.experiment)
    for name, value in host.variant.torrc.items():
        theirs = given.get(name.casefold())
        source = f"variant {host.variant.name}"
        if theirs and theirs.values[-1] != value and asked[name.casefold()].source == source:
            raise UserError(
                f"{theirs.source} sets {theirs}, and {source} sets {name} {value}",
                f"Set the intended value in tor.torrc.all.{name}, or remove the network's.",
            )


def _require_above(host: HostOptions) -> None:
    """Raise UserError if a host's torrc or command line overrides an option of the experiment.

    Tor reads the torrc and the command line after the files of the experiment.
    """
    asked = resolve_options(host.experiment)
    final = resolve_options(host.layers)
    lost = {
        name: setting
        for name, setting in asked.items()
        if name not in final or not set(setting.values) <= set(final[name].values)
    }
    for layer in reversed(host.own):
        for written, values in layer.options.items():
            setting = lost.get(written.lstrip("+/").casefold())
            if setting is not None:
                theirs = Setting(written, tuple(values), layer.source)
                raise UserError(
                    f"{layer.source} sets {theirs}, which overrides {setting} of {setting.source}",
                    "Remove one of them.",
                )


def _require_port(host: HostOptions, torrc: Mapping[str, Sequence[str]]) -> None:
    """Raise UserError if clients would not listen on the port that their traffic generators use."""
    network = resolve_options(host.network).get("socksport")
    asked = next(
        (values[0] for name, values in torrc.items() if name.casefold() == "socksport"), None
    )
    if network and asked and network.values[-1].split()[:1] != asked.split()[:1]:
        raise UserError(
            f"tor.torrc.client.SocksPort is {asked}, and {network.source} sets {network}",
            "Use the network's port, where its traffic generators connect.",
        )
