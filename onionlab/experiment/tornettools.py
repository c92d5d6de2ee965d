"""What an experiment file of kind `tornettools` may hold: the single definition of its keys.

Hosts, links, paths, users and Tor's settings are those of imported networks (onionlab/tornet);
what an experiment says besides is which Tor runs where, how many users there are, and what is
measured.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from onionlab.experiment import values
from onionlab.experiment.schema import (
    RELAY_ROLES,
    Header,
    ShadowOptions,
    UmlOptions,
)
from onionlab.experiment.schema.header import DefaultFigureKind
from onionlab.experiment.schema.tor_settings import (
    ComparedTors,
    ConsensusParameters,
    Scheduler,
    Torrc,
)
from onionlab.experiment.values import Deployment, Traced
from onionlab.yamlfile.field_types import (
    Derived,
    OptionalTime,
    PositiveFraction,
    PositiveTime,
    Text,
    Time,
)
from onionlab.yamlfile.model import Model, key

KIND = "tornettools"
TornetFigureKind = Literal["perf-transfer-times", "perf-circuits", "perf-goodput", "relay-goodput"]
TORNET_FIGURE_KINDS: tuple[str, ...] = get_args(TornetFigureKind)
MARKOV, PERF = "markov", "perf"
TO_EXITS, TO_ONION_SERVICES = "exit", "onion"

_set_name = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")


class NetworkFacts(Model):
    """What the settings have to know of the networks: of the first one of the set."""

    stop_s: float
    bootstrap_end_s: float
    network_scale: float | None
    """Size, as a share of the public Tor; None: nobody told."""
    classes: dict[str, int]
    """Class of clients -> how many there are."""
    hosts: int
    tors: int
    relays: dict[str, int]
    """Role -> how many there are."""


class TornetNetwork(Model):
    """Which networks."""

    name: Annotated[str, _set_name] = key(
        description="of a set of networks that `make import-network` made; seed n runs in the n-th"
    )
    oniontrace: Literal["as-imported", "none"] = key(
        "as-imported",
        description="`none` leaves OnionTrace out, and what is read from its logs: circuit build "
        "times, relay goodput",
    )
    facts: Derived[NetworkFacts | None] = None
    """None: there is no such network."""


class TornetTraffic(Model):
    """How many users there are."""

    markov_clients: PositiveFraction = key(
        "100 %",
        description="share of the clients that play Markov models; each one's own load stays, and "
        "those of a smaller share are among those of a larger one",
    )


class TornetTor(ComparedTors):
    """Which Tor runs, and what is set otherwise than in the networks' own files."""

    deployment: Annotated[Deployment, values.deployment_by_role()] = key(
        "all", description="who runs the variant; the others run the baseline"
    )
    scheduler: Scheduler | None = key(
        None, description="channel scheduler; without it as the network has it"
    )
    trace: Annotated[Traced, values.traced(RELAY_ROLES)] = key(
        "none",
        description="relays that write down when each cell passes "
        "(see docs/explanation/celltrace.md)",
    )
    consensus_params: ConsensusParameters = key(
        {}, description="network parameters that the authorities vote for"
    )
    torrc: Torrc = key(
        {}, description="further options; they win over a variant's and over the network's files"
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
    """None: there is no such network."""

    @property
    def stop_s(self) -> float:
        """End of the simulation. Raises ValueError where there is no such network."""
        stop_s = self.network_stop_s if self.given_stop_s is None else self.given_stop_s
        if stop_s is None:
            raise ValueError("there is no such network")
        return stop_s

    @property
    def measured_start_s(self) -> float:
        """Start of the measured span, since the start of the simulation."""
        return self.measured_from_s

    @property
    def measured_end_s(self) -> float:
        """End of the measured span, since the start of the simulation."""
        return self.stop_s - self.drain_s


class TornetEngine(Model):
    """How the simulation is done."""

    shadow: ShadowOptions = key(
        {}, description="only read when Shadow is the engine; on top of the network's own options"
    )
    uml: UmlOptions = key({}, description="only read when the embedded engine runs")


class TornetSettings(Model):
    """Everything that determines a run but its variant and its network."""

    network: TornetNetwork = key(description="imported networks")
    traffic: TornetTraffic = key({}, description="users")
    tor: TornetTor = key(description="variants, and what else is set")
    time: TornetTime = key({}, description="phases of a run")
    engine: TornetEngine = key({}, description="options of the simulation itself")

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants, in the order of figures."""
        return self.tor.variants

    @property
    def baseline(self) -> str:
        """The variant that the others are compared with."""
        return self.tor.baseline

    @property
    def facts(self) -> NetworkFacts:
        """What is known of the networks. Raises ValueError where there is no such network."""
        if self.network.facts is None:
            raise ValueError(f"there is no network {self.network.name}")
        return self.network.facts

    def knowing(self, facts: NetworkFacts) -> TornetSettings:
        """The same, with what the networks say."""
        return self.model_copy(
            update={
                "network": self.network.model_copy(update={"facts": facts}),
                "time": self.time.model_copy(update={"network_stop_s": facts.stop_s}),
            }
        )

    @property
    def classes(self) -> dict[str, dict[str, Any]]:
        """What the analysis is told of each class of clients; those of Markov models are load.

        Downloads of perf clients have one of several sizes, each with a timeout of its own.
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
        """Hosts of the network that do not run: Markov clients, each with a Tor."""
        running = sum(int(entry["count"]) for entry in self.classes.values())
        return sum(self.facts.classes.values()) - running

    @property
    def hosts(self) -> int:
        """Hosts that run."""
        return self.facts.hosts - self.left_out

    @property
    def tors(self) -> int:
        """Hosts with a Tor that run."""
        return self.facts.tors - self.left_out


class TornetHeader(Header[TornetSettings, Literal[TornetFigureKind, DefaultFigureKind]]):
    """The keys of a file that are not settings of its runs."""

    kind: Literal["tornettools"] = key(description="this kind of experiment")
    public_tor: Text | None = key(
        None,
        description="a `tor_metrics_*.json` that `tornettools stage` wrote, relative to the "
        "checkout: the public Tor as a line in figures",
    )


class TornetFile(TornetSettings, TornetHeader):
    """A whole experiment file. What it extends can supply any of its keys."""
