"""Torrc options of an imported network's hosts, and their conflicts with an experiment."""

from __future__ import annotations

import itertools
import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.formats.files import HOST_TEMPLATES
from onionlab.errors import UserError
from onionlab.experiment.schema import Torrc
from onionlab.experiment.tor_options import (
    NAMES_OF_HOSTS,
    OPTION_DEFAULTS_LAYER,
    Layer,
    Setting,
    describe_ignored,
    experiment_layers,
    groups_of,
    overriding,
    parameter_options,
    parameter_settings,
    resolve_options,
    unread_because,
    voted_parameters,
)
from onionlab.experiment.tornettools import TornetTor
from onionlab.programs.tor.variants import TorVariant
from onionlab.tornet.model import TornetHost
from onionlab.tornet.torrc_options import read_lines


@dataclass(frozen=True)
class HostOptions:
    """The sources of the options of one host with Tor.

    Attributes:
        role: Its role.
        variant: The variant that it runs.
        network: Layers of its file of defaults and the included files, as imported.
        experiment: Layers of the experiment, which come next.
        own: Layers of its own torrc and its command line, which come last.
    """

    role: str
    variant: TorVariant
    network: list[Layer]
    experiment: list[Layer]
    own: list[Layer]

    @property
    def layers(self) -> list[Layer]:
        """All layers, the lowest first."""
        return [*self.network, *self.experiment, *self.own]


def host_options(
    tor: TornetTor,
    hosts: Mapping[str, TornetHost],
    variants_by_host: Mapping[str, TorVariant],
    files: Mapping[str, bytes],
) -> list[HostOptions]:
    """Return the options of all hosts with Tor; hosts with identical options are listed once.

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
        voted = parameter_options(tor.consensus_params) if host.role == "authority" else {}
        found[key] = HostOptions(
            role=host.role,
            variant=variant,
            network=network,
            experiment=[
                Layer("tor.consensus_params", voted, is_replacing=True),
                *experiment_layers(
                    host.role, scheduler=tor.scheduler, variant=variant, torrc=tor.torrc
                ),
            ],
            own=[*own, Layer("its command line", given, file="command line")],
        )
    return list(found.values())


def require_effect(tor: TornetTor, hosts: Collection[HostOptions]) -> None:
    """Raise UserError if the network's files and the experiment contradict each other."""
    for host in hosts:
        _require_variant(host)
        _require_above(host)
        if "client" in groups_of(host.role):
            _require_port(host, tor.torrc.client)
    _require_parameters(tor.consensus_params, hosts)
    _require_read(tor.torrc, hosts)


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
    """Raise UserError if a variant's option would silently replace a value of the network."""
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
    """Raise UserError if a host's own torrc, which comes last, overrides the experiment."""
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


def _require_parameters(parameters: Mapping[str, int], hosts: Collection[HostOptions]) -> None:
    """Raise UserError if no host of the network reads a parameter that the experiment votes for."""
    settings: dict[str, list[Mapping[str, Setting]]] = defaultdict(list)
    for host in hosts:
        options = resolve_options([OPTION_DEFAULTS_LAYER, *host.layers])
        settings[groups_of(host.role)[-1]].append(options)
    all_options = [options for of_hosts in settings.values() for options in of_hosts]
    voted = parameter_settings(parameters)
    for parameter in sorted(parameters):
        ignored = unread_because(parameter, all_options, voted)
        for group, of_hosts in settings.items():
            found = [next(overriding(parameter, {group: one}), None) for one in of_hosts]
            if found[0] is not None and all(found):
                ignored = found[0]
        # Loading the experiment already checked whether another variant reads it.
        if ignored and not ignored.source.startswith("variant "):
            raise UserError(f"tor.consensus_params.{parameter}: {describe_ignored(ignored)}")


def _require_read(torrc: Torrc, hosts: Collection[HostOptions]) -> None:
    """Raise UserError if no host of the network reads an option that the experiment sets."""
    resolved = [(groups_of(one.role), resolve_options(one.layers)) for one in hosts]
    authority = next((options for groups, options in resolved if "authority" in groups), {})
    voted = parameter_settings(voted_parameters(authority))
    for group, options in torrc:
        settings = [found for groups, found in resolved if group in groups]
        for option in options:
            setting = unread_because(option, settings, voted)
            # Loading the experiment already checked whether another variant reads it.
            if setting and not setting.source.startswith("variant "):
                raise UserError(f"tor.torrc.{group}.{option}: {describe_ignored(setting)}")
