"""The keys of an experiment of kind `tornettools`.

Hosts, links, paths, users and Tor's options come from imported networks (onionlab/tornet). The
experiment sets which hosts run which variant of Tor, the share of users that is simulated, and the
measured span.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from onionlab.experiment.header import DefaultFigureKind, Header
from onionlab.experiment.settings import DeployedGroup, RunSettings, Scheduler, TorSettings
from onionlab.experiment.traffic_settings import Engines
from onionlab.yamlfile.field_types import (
    Derived,
    OptionalTime,
    PositiveFraction,
    PositiveTime,
    Text,
    Time,
)
from onionlab.yamlfile.model import Model, key

TornetFigureKind = Literal["perf-transfer-times", "perf-circuits", "perf-goodput", "relay-goodput"]
MARKOV, PERF = "markov", "perf"
TO_EXITS, TO_ONION_SERVICES = "exit", "onion"

_set_name = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")


class NetworkFacts(Model):
    """Facts about the first imported network, on which the settings depend."""

    stop_s: float
    bootstrap_end_s: float
    network_scale: float | None
    """Size as a share of the public Tor network; None if unknown."""
    classes: dict[str, int]
    """Class of clients -> number of clients."""
    hosts: int
    tors: int
    relays: dict[str, int]
    """Role -> number of relays."""


class TornetNetwork(Model):
    """The imported networks."""

    name: Annotated[str, _set_name] = key(
        description="of a set of networks that `make import-network` made; seed n runs in the n-th"
    )
    oniontrace: Literal["as-imported", "none"] = key(
        "as-imported",
        description="`none` leaves OnionTrace out, and what is read from its logs: circuit build "
        "times, relay goodput",
    )
    facts: Derived[NetworkFacts | None] = None
    """Facts about the networks; None if the networks are missing."""


class TornetTraffic(Model):
    """The number of users."""

    markov_clients: PositiveFraction = key(
        "100 %",
        description="share of the clients that play Markov models; each client's load stays the "
        "same, and a smaller share selects a subset of the clients",
    )


class TornetTor(TorSettings):
    """The Tor variants, and options that override the networks' own files."""

    deployment: DeployedGroup = key(
        "all", description="hosts that run the variant; the others run the baseline"
    )
    scheduler: Scheduler | None = key(  # type: ignore[assignment]
        None, description="channel scheduler; without it as the network has it"
    )


class TornetTime(Model):
    """The phases of a run."""

    measured_from_s: PositiveTime = key(
        "1200 s",
        alias="measured_from",
        description="streams that start from here on count: tornettools' converge time",
    )
    drain_s: Time = key(
        "120 s",
        alias="drain",
        description="before the end of the simulation; streams that start in it do not count. As "
        "long as the longest timeout of tornettools' perf clients",
    )
    given_stop_s: OptionalTime = key(
        "none", alias="stop", description="end of the simulation; none: the network's own"
    )
    network_stop_s: Derived[float | None] = None
    """End of the simulation as in the imported network; None if the network is missing."""

    @property
    def stop_s(self) -> float:
        """Return the end of the simulation, in seconds after its start."""
        stop_s = self.given_stop_s or self.network_stop_s
        assert stop_s is not None, "the network is missing"
        return stop_s

    @property
    def measured_start_s(self) -> float:
        """Return the start of the measured span, in seconds after the start of the simulation."""
        return self.measured_from_s

    @property
    def measured_end_s(self) -> float:
        """Return the end of the measured span, in seconds after the start of the simulation."""
        return self.stop_s - self.drain_s


class TornetSettings(RunSettings):
    """Everything that determines a run, except its variant, network and repeat."""

    network: TornetNetwork = key(description="imported networks")
    traffic: TornetTraffic = key({}, description="users")
    tor: TornetTor = key(description="variants, and what else is set")
    time: TornetTime = key({}, description="phases of a run")
    engine: Engines = key({}, description="options of the simulation itself")

    @property
    def facts(self) -> NetworkFacts:
        """Return facts about the networks, which must not be missing."""
        assert self.network.facts is not None, "the networks are missing"
        return self.network.facts

    def with_facts(self, facts: NetworkFacts) -> TornetSettings:
        """Return the settings with facts about their networks."""
        return self.model_copy(
            update={
                "network": self.network.model_copy(update={"facts": facts}),
                "time": self.time.model_copy(update={"network_stop_s": facts.stop_s}),
            }
        )

    @property
    def classes(self) -> dict[str, dict[str, Any]]:
        """Return the facts that the analysis needs about each class of clients, by class.

        Markov clients are background load. The facts include no size and no timeout: perf clients
        download files of several sizes, and each size has its own timeout.
        """
        share = self.traffic.markov_clients
        found = {}
        for name, count in self.facts.classes.items():
            is_load = name.startswith(f"{MARKOV}-")
            running = max(1, round(share * count)) if is_load else count
            found[name] = {"count": running, "load": is_load}
        return found

    @property
    def left_out(self) -> int:
        """Return the number of Markov clients that do not run, if only a share of them runs.

        Each such client is a host with a Tor process.
        """
        running = sum(int(entry["count"]) for entry in self.classes.values())
        return sum(self.facts.classes.values()) - running

    @property
    def hosts(self) -> int:
        """Return the number of simulated hosts."""
        return self.facts.hosts - self.left_out

    @property
    def tors(self) -> int:
        """Return the number of simulated hosts that have a Tor process."""
        return self.facts.tors - self.left_out


class TornetHeader(Header[TornetSettings, Literal[TornetFigureKind, DefaultFigureKind]]):
    """The keys of a file that are not settings of its runs."""

    default_figures = get_args(TornetFigureKind)

    kind: Literal["tornettools"] = key(description="this kind of experiment")
    public_tor: Text | None = key(
        None,
        description="a `tor_metrics_*.json` that `tornettools stage` wrote, relative to the "
        "checkout: the public Tor as a line in figures",
    )


class TornetFile(TornetSettings, TornetHeader):
    """All keys of an experiment file, for its schema and reference and for suggestions of names.

    No key is required, because the files that the file extends may supply any key.
    """
