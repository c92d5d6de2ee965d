"""The keys of `tor`: which Tor runs, and how it is set."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from onionlab.experiment import values
from onionlab.experiment.schema.names import IDENTIFIER, RELAY_ROLES, OptionName, ParameterName
from onionlab.experiment.values import Deployment, Traced
from onionlab.yamlfile.field_types import PositiveTime, TorrcLines
from onionlab.yamlfile.model import Model, key

TorrcOptions = dict[OptionName, TorrcLines]


class Scheduler(Model):
    """Tor's channel scheduler."""

    name: Literal["KIST", "KISTLite", "Vanilla"] = key("KIST", description="torrc `Schedulers`")
    run_interval_s: PositiveTime = key(
        "10 ms",
        alias="run_interval",
        description="torrc `KISTSchedRunInterval`, at most 100 ms; not with Vanilla",
    )


class Torrc(Model):
    """Further options of Tor, by kind of host. A later line in this order wins."""

    all: TorrcOptions = key({}, description="every Tor")
    authority: TorrcOptions = key({}, description="directory authorities")
    relay: TorrcOptions = key({}, description="relays")
    client: TorrcOptions = key({}, description="clients and onion services")


class ComparedTors(Model):
    """The variants of Tor to compare."""

    variants: tuple[Annotated[str, IDENTIFIER], ...] = key(
        strict=False,
        min_length=1,
        description="names from `tor-patches/variants.yaml`; their order is the order in figures",
    )
    baseline: Annotated[str, IDENTIFIER] = key(
        description="the variant that the others are compared with"
    )


ConsensusParameters = dict[ParameterName, Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]]


class TorSettings(ComparedTors):
    """Variants and options of Tor."""

    deployment: Annotated[Deployment, values.deployment()] = key(
        "all", description="hosts that run the variant; the others run the baseline"
    )
    scheduler: Scheduler = key({}, description="channel scheduler")
    trace: Annotated[Traced, values.traced(RELAY_ROLES)] = key(
        "none",
        description="relays that log the times of each cell (see docs/explanation/celltrace.md)",
    )
    consensus_params: ConsensusParameters = key(
        {}, description="network parameters that the authorities vote for"
    )
    torrc: Torrc = key({}, description="further options, which override those of a variant")
