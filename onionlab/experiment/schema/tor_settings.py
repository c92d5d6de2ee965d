"""The keys of `tor`: which Tor runs, and how it is set."""

from __future__ import annotations

from typing import Annotated

from onionlab.experiment import values
from onionlab.experiment.schema.names import IDENTIFIER, RELAY_ROLES, OptionName, ParameterName
from onionlab.experiment.values import Deployment, Traced
from onionlab.yamlfile import kinds
from onionlab.yamlfile.model import Model, key

TorrcOptions = dict[OptionName, Annotated[tuple[str, ...], kinds.torrc_lines()]]


class Scheduler(Model):
    """Tor's channel scheduler."""

    name: Annotated[str, kinds.choice("KIST", "KISTLite", "Vanilla")] = key(
        "KIST", description="torrc `Schedulers`"
    )
    run_interval_s: Annotated[float, kinds.time(positive=True)] = key(
        "10 ms",
        alias="run_interval",
        description="torrc `KISTSchedRunInterval`, at most 100 ms; not with Vanilla",
    )


class Torrc(Model):
    """Further options of Tor, by who gets them. A later line in this order wins."""

    all: TorrcOptions = key({}, description="every Tor")
    authority: TorrcOptions = key({}, description="directory authorities")
    relay: TorrcOptions = key({}, description="relays")
    client: TorrcOptions = key({}, description="clients and onion services")


class ComparedTors(Model):
    """Which Tors are compared."""

    variants: tuple[Annotated[str, IDENTIFIER], ...] = key(
        strict=False,
        min_length=1,
        description="names from `tor-patches/variants.yaml`; their order is the order in figures",
    )
    baseline: Annotated[str, IDENTIFIER] = key(
        description="the variant that the others are compared with"
    )


ConsensusParameters = dict[ParameterName, Annotated[int, kinds.whole_number(-(2**31), 2**31 - 1)]]


class TorSettings(ComparedTors):
    """Which Tor runs, and how it is set."""

    deployment: Annotated[Deployment, values.deployment()] = key(
        "all", description="who runs the variant; the others run the baseline"
    )
    scheduler: Scheduler = key({}, description="channel scheduler")
    trace: Annotated[Traced, values.traced(RELAY_ROLES)] = key(
        "none",
        description="relays that write down when each cell passes "
        "(see docs/explanation/celltrace.md)",
    )
    consensus_params: ConsensusParameters = key(
        {}, description="network parameters that the authorities vote for"
    )
    torrc: Torrc = key({}, description="further options; they win over a variant's")
