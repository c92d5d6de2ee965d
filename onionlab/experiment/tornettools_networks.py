"""What an experiment of kind `tornettools` knows of its imported networks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from onionlab.errors import UserError
from onionlab.experiment.experiment import Experiment, Level
from onionlab.experiment.tornettools import (
    MARKOV,
    PERF,
    TO_EXITS,
    TO_ONION_SERVICES,
    NetworkFacts,
    TornetSettings,
)
from onionlab.experiment.tornettools_checks import impossible_in_networks
from onionlab.tornet.keeping import list_seeds, load_tornet
from onionlab.tornet.model import RELAY_ROLES, Tornet, TornetHost
from onionlab.yamlfile.units import show

HOW_TO_IMPORT = (
    "make import-network FROM='directory ...' NAME={name}, one directory of `tornettools generate` "
    "for each seed: docs/how-to/import-networks.md"
)


def client_class(host: TornetHost) -> str | None:
    """What the analysis calls the class of a client; None of another host."""
    kind = {"markov-client": MARKOV, "perf-client": PERF}.get(host.role)
    if kind is None:
        return None
    return f"{kind}-{TO_ONION_SERVICES if host.uses_onion_services else TO_EXITS}"


def facts_of(tornet: Tornet) -> NetworkFacts:
    """What settings have to know of a network."""
    classes = Counter(name for host in tornet.hosts.values() if (name := client_class(host)))
    return NetworkFacts(
        stop_s=tornet.stop_ms / 1000,
        bootstrap_end_s=tornet.bootstrap_end_ms / 1000,
        network_scale=_number(tornet.origin.generate.get("network_scale")),
        classes=dict(sorted(classes.items())),
        hosts=len(tornet.hosts),
        tors=tornet.programs.get("tor", 0),
        relays={role: tornet.counts[role] for role in RELAY_ROLES if role in tornet.counts},
    )


def knowing_networks(root: Path, experiment: Experiment) -> Experiment:
    """The experiment with what the first network of each set says; sets that are missing do not.

    Raises UserError where a network is not what was imported, or cannot do what is asked of it.
    """
    levels = {
        name: Level(level.label, _knowing(root, experiment.name, level.settings))
        for name, level in experiment.levels.items()
    }
    return replace(experiment, levels=levels, _full_size=levels)


def _knowing(root: Path, name: str, settings: TornetSettings) -> TornetSettings:
    seeds = list_seeds(root, settings.network.name)
    if not seeds:
        return settings
    found = settings.knowing(facts_of(load_tornet(root, settings.network.name, seeds[0]).tornet))
    problems = [
        f"{name}: {'.'.join(finding.location)}: {finding.message}"
        for finding in impossible_in_networks(found)
    ]
    if problems:
        raise UserError("\n".join(problems))
    return found


def require_networks(root: Path, experiment: Experiment) -> None:
    """Raises UserError unless there is a network for each seed of each level that takes one."""
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


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None
