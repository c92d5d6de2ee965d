"""Add facts about imported networks to experiments of kind `tornettools`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from analysis.formats.durable import write_whole
from onionlab.errors import UserError
from onionlab.experiment.checks import find_errors_in_networks
from onionlab.experiment.experiment import Experiment
from onionlab.experiment.header import EXPERIMENTS, NAME, RESERVED_NAMES, SUFFIX
from onionlab.experiment.tornettools import (
    MARKOV,
    PERF,
    TO_EXITS,
    TO_ONION_SERVICES,
    NetworkFacts,
    TornetSettings,
    TornetTime,
)
from onionlab.tornet.keeping import list_seeds, load_tornet
from onionlab.tornet.model import RELAY_ROLES, Tornet, TornetHost
from onionlab.yamlfile.units import format_time, show

CONVERGED_SHARE = 1 / 3
"""Share of the simulated time before the measured span, in the file that `write_first_experiment`
writes. tornettools uses the same share: 1200 s of 3600 s."""
_TEMPLATE = Path(__file__).with_name("first_experiment.yaml.template")

HOW_TO_IMPORT = (
    "make import-network FROM='directory ...' NAME={name}, one directory of `tornettools generate` "
    "for each seed: docs/how-to/import-networks.md"
)


def client_class(host: TornetHost) -> str | None:
    """Return the traffic class of a client, or None if the host is not a client."""
    kind = {"markov-client": MARKOV, "perf-client": PERF}.get(host.role)
    if kind is None:
        return None
    return f"{kind}-{TO_ONION_SERVICES if host.uses_onion_services else TO_EXITS}"


def describe_network(tornet: Tornet) -> NetworkFacts:
    """Return facts about a network, on which the settings of an experiment depend."""
    classes = Counter(name for host in tornet.hosts.values() if (name := client_class(host)))
    scale = tornet.origin.generate.get("network_scale")
    return NetworkFacts(
        stop_s=tornet.stop_ms / 1000,
        bootstrap_end_s=tornet.bootstrap_end_ms / 1000,
        network_scale=float(scale) if isinstance(scale, int | float) and scale > 0 else None,
        classes=dict(sorted(classes.items())),
        hosts=len(tornet.hosts),
        tors=tornet.programs.get("tor", 0),
        relays={role: tornet.counts[role] for role in RELAY_ROLES if role in tornet.counts},
    )


def add_network_facts(root: Path, name: str, settings: Any) -> Any:
    """Return the settings of an experiment with facts about the first of its imported networks.

    Settings of other kinds, and settings whose networks are missing, are not changed. `name`: the
    experiment's name, for messages.

    Raises:
        UserError: a network has changed since its import, or contradicts the settings.
    """
    if not isinstance(settings, TornetSettings):
        return settings
    seeds = list_seeds(root, settings.network.name)
    if not seeds:
        return settings
    tornet = load_tornet(root, settings.network.name, seeds[0]).tornet
    found = settings.with_facts(describe_network(tornet))
    problems = [
        f"{name}: {'.'.join(location)}: {message}"
        for location, message in find_errors_in_networks(found)
    ]
    if problems:
        raise UserError("\n".join(problems))
    return found


def require_networks(root: Path, experiment: Experiment) -> None:
    """Raise UserError if a level with imported networks lacks a network for one of the seeds."""
    settings = [level.settings for level in experiment.levels.values()]
    names = [one.network.name for one in settings if isinstance(one, TornetSettings)]
    for name in dict.fromkeys(names):
        there = list_seeds(root, name)
        how = HOW_TO_IMPORT.format(name=name)
        if not there:
            raise UserError(f"{experiment.name}: there are no networks {show(name)}", how)
        missing = [seed for seed in experiment.seeds if seed not in there]
        if missing:
            raise UserError(
                f"{experiment.name}: the networks {name} have no seed "
                f"{', '.join(map(str, missing))}: they have {', '.join(map(str, there))}",
                f"NETWORKS={len(there)}, or more networks: {how}",
            )


def write_first_experiment(root: Path, name: str, tornet: Tornet, networks: int) -> str:
    """Write `experiments/NAME.yaml` for imported networks, unless this file exists.

    The file has the usual keys, for users to change. Its measured span depends on the simulated
    time of the networks. tornet: any of the networks, which have the same simulated time and the
    same bootstrap. Return a message that describes what was done.
    """
    path = root / EXPERIMENTS / f"{name}{SUFFIX}"
    if NAME.fullmatch(name) is None or RESERVED_NAMES.fullmatch(name) is not None:
        return f"no {EXPERIMENTS}/{name}{SUFFIX}: no experiment can have this name"
    if path.exists():
        return f"{path} exists and is not changed"
    facts, drain_s = describe_network(tornet), TornetTime().drain_s
    if facts.stop_s - drain_s <= facts.bootstrap_end_s:
        drain_s = 0.0
    measured_from_s = max(facts.bootstrap_end_s, round(CONVERGED_SHARE * facts.stop_s))
    if measured_from_s >= facts.stop_s - drain_s:
        measured_from_s = facts.bootstrap_end_s
    text = _TEMPLATE.read_text(encoding="utf-8").format(
        name=name,
        networks=networks,
        measured_from=format_time(measured_from_s),
        stop=format_time(facts.stop_s),
        drain=format_time(drain_s),
    )
    if (schema := path.with_name("tornettools.schema.json")).exists():
        text = f"# yaml-language-server: $schema={schema.name}\n{text}"
    write_whole(path, text)
    return f"{path} written: make experiment NAME={name}"
