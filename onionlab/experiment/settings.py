"""The settings of an experiment with Tor, and the keys of `tor` and `time`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, create_model

from onionlab.experiment.network_settings import (
    IDENTIFIER,
    ClassName,
    NetworkSettings,
    OptionName,
    ParameterName,
)
from onionlab.experiment.traffic_settings import EngineSettings, TrafficClass
from onionlab.network.layout import RELAY_ROLES
from onionlab.yamlfile.field_types import Fraction, PositiveTime, Time, TorrcLines, parsed
from onionlab.yamlfile.model import Model, key
from onionlab.yamlfile.units import milliseconds, nearest, show

REPLACED_AS_UNIT = frozenset({"pause", "deployment", "trace"})
"""Keys whose mapping an overriding file or level replaces as a whole, instead of merging it.

Such a mapping chooses one of several alternatives. A merge could combine two alternatives.
"""


@dataclass(frozen=True)
class Deployment:
    """The hosts that run the variant. All other hosts run the experiment's baseline.

    where: "all" (all hosts that run Tor), "relays" (without authorities) or "clients", and in
    networks of tornettools also "exits". fraction: the fraction of these hosts that runs the
    variant.
    """

    where: str
    fraction: float = 1.0


@dataclass(frozen=True)
class Traced:
    """The relays that write a cell trace (docs/explanation/celltrace.md).

    where: "none", "relays", "roles" or "hosts". fraction: the fraction of all relays, for "relays".
    names: the names of the roles or of the hosts.
    """

    where: str = "none"
    fraction: float = 1.0
    names: tuple[str, ...] = ()


def _selection(
    made: type[Deployment] | type[Traced],
    words: tuple[str, ...],
    types: Mapping[str, Any],
    examples: str,
) -> BeforeValidator:
    """Return a validator that makes an object of one of some words, or of a mapping with one key.

    types: key that the mapping can have -> type of its value. The key `fraction` means relays.
    examples: examples of the mapping, for messages.
    """
    schema: Any = Literal[words]
    models: dict[str, type[Model]] = {}
    for name, kind in types.items():
        keys: dict[str, Any] = {name: (kind, ...)}
        models[name] = create_model(name, __base__=Model, **keys)
        schema |= models[name]

    def parse(value: object) -> object:
        if isinstance(value, dict) and len(value) == 1 and (key := next(iter(value))) in models:
            item = getattr(models[key].model_validate(value), key)
            if isinstance(item, list):
                return Traced(key, names=tuple(item))
            return made("relays" if key == "fraction" else key, item)
        if isinstance(value, str) and value in words:
            return made(value)
        hint = nearest(value, words) if isinstance(value, str) else ""
        expected = f"{', '.join(words)} or {examples}"
        raise ValueError(f"expected {expected}, got {show(value)}{hint}")

    return parsed(parse, schema)


_GROUPS = ("relays", "exits", "clients")
DeployedRelays = Annotated[
    Deployment,
    _selection(
        Deployment,
        ("all", "relays", "clients"),
        {"fraction": Fraction, "clients": Fraction},
        '{fraction: "50 %"} (of the relays), {clients: "50 %"}',
    ),
]
DeployedGroup = Annotated[
    Deployment,
    _selection(
        Deployment,
        ("all", *_GROUPS),
        dict.fromkeys(_GROUPS, Fraction),
        'a share of these such as {relays: "50 %"}',
    ),
]
TracedRelays = Annotated[
    Traced,
    _selection(
        Traced,
        ("none", "relays"),
        {
            "fraction": Fraction,
            "roles": Annotated[list[Literal[RELAY_ROLES]], Field(min_length=1)],  # type: ignore[valid-type]
            "hosts": Annotated[list[str], Field(min_length=1)],
        },
        '{fraction: "50 %"} (of the relays), {roles: [guard, exit]}, {hosts: [relay2guard]}',
    ),
]

TorrcOptions = dict[OptionName, TorrcLines]

KIST_INTERVAL_MAX_MS = 100  # KIST_SCHED_RUN_INTERVAL_MAX in src/core/or/scheduler.h


def _require_interval(time_s: float) -> float:
    if milliseconds(time_s) > KIST_INTERVAL_MAX_MS:
        raise ValueError(f"expected at most {KIST_INTERVAL_MAX_MS} ms, which is Tor's limit")
    return time_s


class Scheduler(Model):
    """Tor's channel scheduler."""

    name: Literal["KIST", "KISTLite", "Vanilla"] = key("KIST", description="torrc `Schedulers`")
    run_interval_s: Annotated[PositiveTime, AfterValidator(_require_interval)] = key(
        "10 ms",
        alias="run_interval",
        description="torrc `KISTSchedRunInterval`, at most 100 ms; not with Vanilla",
    )


class Torrc(Model):
    """Further options of Tor, by kind of host. Later keys override earlier keys."""

    all: TorrcOptions = key({}, description="every Tor")
    authority: TorrcOptions = key({}, description="directory authorities")
    relay: TorrcOptions = key({}, description="relays")
    client: TorrcOptions = key({}, description="clients and onion services")


ConsensusParameters = dict[ParameterName, Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]]


class TorSettings(Model):
    """Variants and options of Tor."""

    variants: tuple[Annotated[str, IDENTIFIER], ...] = key(
        strict=False,
        min_length=1,
        description="names from `tor-patches/variants.yaml`; their order is the order in figures",
    )
    baseline: Annotated[str, IDENTIFIER] = key(
        description="the variant that the others are compared with"
    )
    deployment: DeployedRelays = key(
        "all", description="hosts that run the variant; the others run the baseline"
    )
    scheduler: Scheduler = key({}, description="channel scheduler")
    trace: TracedRelays = key(
        "none",
        description="relays that log the times of each cell (see docs/explanation/celltrace.md)",
    )
    consensus_params: ConsensusParameters = key(
        {}, description="network parameters that the authorities vote for"
    )
    torrc: Torrc = key(
        {}, description="further options, which override those of variants and imported networks"
    )


FIRST_CONSENSUS_S = 25.0
"""Simulated time at which all relays have the first consensus. Clients start Tor then or later."""
ONION_SERVICES_START_S = (25.0, 30.0)
"""Simulated span in which onion services start. Clients start later: they need descriptors."""


class TimeSettings(Model):
    """The phases of a run, one after the other."""

    bootstrap_s: PositiveTime = key(
        alias="bootstrap", description="Tor starts, builds its consensus and its first circuits"
    )
    warm_up_s: Time = key(alias="warm_up", description="clients start; not measured")
    measured_s: PositiveTime = key(
        alias="measured", description="streams that start in this span are measured"
    )
    drain_s: Time = key(
        alias="drain", description="streams that started in the measured span can end"
    )

    @property
    def measured_start_s(self) -> float:
        """Return the start of the measured span, in seconds after the start of the simulation."""
        return self.bootstrap_s + self.warm_up_s

    @property
    def measured_end_s(self) -> float:
        """Return the end of the measured span, in seconds after the start of the simulation."""
        return self.measured_start_s + self.measured_s

    @property
    def stop_s(self) -> float:
        """Return the end of the simulation, in seconds after its start."""
        return self.measured_end_s + self.drain_s


class RunSettings(Model):
    """Base of the settings of a run, for all kinds of experiments."""

    section: ClassVar[str] = "tor"
    """The key of an experiment file that contains the variants."""

    @property
    def compared(self) -> Any:
        """Return the settings below the key that `section` names: variants, baseline and others."""
        return getattr(self, self.section)

    def with_variants(self, names: Sequence[str]) -> Self:
        """Return the settings with other variants."""
        section = self.compared.model_copy(update={"variants": tuple(names)})
        return self.model_copy(update={self.section: section})


class Settings(RunSettings):
    """Everything that determines a run, except its variant, network and repeat."""

    network: NetworkSettings = key(description="hosts and the network between them")
    traffic: dict[ClassName, TrafficClass] = key(
        min_length=1, description="classes of clients by name, for instance `web` and `bulk`"
    )
    tor: TorSettings = key(description="variants and Tor's settings")
    time: TimeSettings = key(description="phases of a run")
    engine: EngineSettings = key({}, description="options of the simulation itself")

    @property
    def classes(self) -> dict[str, dict[str, Any]]:
        """Return the facts that the analysis needs about each class of clients, by class."""
        return {
            name: {
                "timeout_s": entry.timeout_s,
                "stallout_s": entry.stallout_s,
                "request_bytes": entry.request_bytes,
                "count": entry.count,
                **({"load": True} if entry.is_load else {}),
            }
            for name, entry in self.traffic.items()
        }

    def logs_mark(self, class_name: str, mark_bytes: int) -> bool:
        """Return whether the logs of a class contain the time to the first ``mark_bytes`` bytes.

        If the class's streams are larger, only logs at TGen's level info contain this time.
        """
        size = self.traffic[class_name].request_bytes or 0
        is_info = self.engine.tgen.loglevel == "info"
        return size == mark_bytes or (size > mark_bytes and is_info)

    @property
    def client_count(self) -> int:
        """Return the number of all clients, including `network.perf_clients`."""
        return sum(c.count for c in self.traffic.values()) + self.network.perf_clients

    @property
    def host_count(self) -> int:
        """Return the number of simulated hosts."""
        net = self.network
        services = net.servers.count + net.onion_services
        return net.authorities + net.relays.count + services + self.client_count
