"""What an experiment file may hold: the single definition of its keys.

The models are written as the YAML reads (a field's alias is its key in the file) and hold base
units after parsing, with the unit in the attribute's name. Everything else follows from them: the
JSON Schema, the reference in docs/reference/experiments.md and the error messages.

Defaults stand in the notation of the file ("1 s") and are parsed like any other value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, cast

from pydantic import model_validator

from onionlab.experiment import shadow_options, values
from onionlab.experiment.values import Deployment, Traced
from onionlab.yamlfile import kinds, units
from onionlab.yamlfile.model import Model, key

__all__ = [
    "COMPARING_FIGURE_KINDS",
    "DEFAULT_FIGURE_KINDS",
    "FIGURE_KINDS",
    "RELAY_ROLES",
    "Clients",
    "EngineSettings",
    "ExperimentFile",
    "Figure",
    "Header",
    "LevelEntry",
    "NetworkSettings",
    "Pause",
    "PublishedCellTimes",
    "RelayRole",
    "Relays",
    "Scheduler",
    "Servers",
    "Settings",
    "ShadowOptions",
    "Start",
    "TgenOptions",
    "TimeSettings",
    "TorHeader",
    "TorSettings",
    "Torrc",
    "TrafficClass",
    "UmlOptions",
]

RELAY_ROLES = ("exitguard", "guard", "exit", "middle")
DEFAULT_FIGURE_KINDS = ("throughput-timeouts", "ttfb-320kib", "quantile-ratios")
"""What an experiment that names no figures gets for each level."""

COMPARING_FIGURE_KINDS = ("quantile-ratios",)
"""Those that show nothing where there is one variant only."""

FIGURE_KINDS = (*DEFAULT_FIGURE_KINDS, "stream-progress", "starvation-map")

MAX_COUNT = 1_000_000
MAX_PAUSE_CHOICES = 10_000
MAX_STREAMS = 1000

_count = kinds.whole_number(0, MAX_COUNT)
_positive_count = kinds.whole_number(1, MAX_COUNT)
_identifier = kinds.name(r"[a-z0-9][a-z0-9-]*", "lower-case letters, digits and hyphens")

ClassName = Annotated[str, kinds.name(r"[a-z]+", "lower-case letters")]
LevelName = Annotated[str, _identifier]
MetricName = Annotated[str, kinds.name(r"[a-z0-9_]+", "a metric of docs/reference/metrics.md")]
ParameterName = Annotated[str, kinds.name(r"[A-Za-z][A-Za-z0-9_-]*", "a consensus parameter")]
OptionName = Annotated[str, kinds.name(r"_{0,2}[A-Za-z][A-Za-z0-9_]*", "an option of Tor")]
TorrcOptions = dict[OptionName, Annotated[tuple[str, ...], kinds.torrc_lines()]]
RawOptions = dict[str, str | int | bool | None]


class RelayRole(Model):
    """The relays of one role."""

    derived = frozenset({"full_count"})
    filled_in: ClassVar[dict[str, str]] = {"capacity": "(the role's name)"}

    count: Annotated[int, _count] = key(description="how many relays")
    capacity: Annotated[str, _identifier] = key(
        description="a distribution of `configs/relay-capacity.yaml`"
    )
    capacity_factor: Annotated[float, kinds.number()] = key(
        1.0, description="multiplies the capacity of each relay of this role"
    )
    bandwidth_rate_bit_per_s: Annotated[int | None, kinds.optional_rate()] = key(
        "none",
        alias="bandwidth_rate",
        description="limit that each of these relays keeps to by itself: torrc `BandwidthRate`, "
        "and `BandwidthBurst` of one second; Tor takes no less than 75 KiB/s",
    )
    full_count: int = 0
    """`count` before SCALE."""


class Relays(Model):
    """The relays, by the position they can take in a circuit. A role that is left out has none."""

    exitguard: RelayRole = key({"count": 0}, description="exits that are guards too")
    guard: RelayRole = key({"count": 0}, description="guards (entries)")
    exit: RelayRole = key({"count": 0}, description="exits that are no guards")
    middle: RelayRole = key({"count": 0}, description="relays that are neither")

    @model_validator(mode="before")
    @classmethod
    def _name_capacities(cls, value: object) -> object:
        """A role's capacities follow the distribution of its own name unless told otherwise."""
        if not isinstance(value, dict):
            return value
        named: dict[object, object] = dict(value)
        for role in RELAY_ROLES:
            entry = named.get(role, {"count": 0})
            named[role] = {"capacity": role, **entry} if isinstance(entry, dict) else entry
        return named

    def items(self) -> Iterator[tuple[str, RelayRole]]:
        """Role name and role, in the order of :data:`RELAY_ROLES`."""
        for role in RELAY_ROLES:
            yield role, cast(RelayRole, getattr(self, role))

    @property
    def count(self) -> int:
        """All relays together, without the authorities."""
        return sum(role.count for _, role in self.items())


class Servers(Model):
    """The web servers, outside of the Tor network."""

    count: Annotated[int, _count] = key(description="how many servers")
    bandwidth_bit_per_s: Annotated[int, kinds.bandwidth_or_regions(regions=False)] = key(
        alias="bandwidth", description="of each server, up and down alike"
    )


class Clients(Model):
    """What holds for the clients of all classes."""

    bandwidth_bit_per_s: Annotated[int | None, kinds.bandwidth_or_regions(regions=True)] = key(
        "regions",
        alias="bandwidth",
        description="of each client, up and down alike; `regions`: as the geography says",
    )


class NetworkSettings(Model):
    """The hosts and the network between them."""

    derived = frozenset({"scale"})

    authorities: Annotated[int, _positive_count] = key(
        3, description="directory authorities; SCALE leaves them as they are, they carry no load"
    )
    relays: Relays = key(description="relays by role")
    capacity_factor: Annotated[float, kinds.number()] = key(
        1.0,
        description="multiplies the capacity of every relay (see docs/explanation/calibration.md)",
    )
    servers: Servers = key(description="servers that the clients fetch from")
    clients: Clients = key({}, description="what holds for all clients")
    perf_clients: Annotated[int, _count] = key(
        0, description="clients named as tornettools' `perfclientNexit` hosts, for its own tools"
    )
    middle_hops: Annotated[str, kinds.choice("weighted", "dedicated")] = key(
        "weighted",
        description="`weighted`: Tor's bandwidth weights give guards and exits a share of the "
        "middle position; `dedicated`: the relays of role middle carry all of it "
        "(see docs/explanation/calibration.md)",
    )
    geography: Annotated[str, _identifier] = key(
        description="a geography of `configs/regions.yaml`: places of hosts, latencies, "
        "access bandwidth"
    )
    packet_loss: Annotated[float, kinds.fraction()] = key(
        "0 %", description="share of packets lost on each path between two places"
    )
    scale: float = 1.0
    """SCALE: what the counts were multiplied by."""

    def capacity_total_factor(self, role: str) -> float:
        """What each relay of a role has its drawn capacity multiplied by.

        It joins the calibration's factors and makes up for rounding: a role of `full_count` relays
        scaled to `count` keeps exactly `scale` times its full total, if the draws for `count`
        relays have the same mean as those for `full_count`. Without relays it is 0.
        """
        entry = dict(self.relays.items())[role]
        if entry.count == 0:
            return 0.0
        factor = self.capacity_factor * entry.capacity_factor
        return factor * (self.scale * entry.full_count) / entry.count


class Pause(Model):
    """How long a client waits between two streams: none, or one of uniform and choices."""

    word = "none"

    uniform_s: Annotated[tuple[float, float] | None, kinds.time_span()] = key(
        None,
        alias="uniform",
        validate_default=False,
        description="lowest and highest pause; all pauses in steps of `step` are equally likely",
    )
    step_s: Annotated[float, kinds.time(positive=True)] = key(
        "1 s", alias="step", description="distance of the pauses that `uniform` draws from"
    )
    choices_s: tuple[Annotated[float, kinds.time()], ...] = key(
        (), alias="choices", strict=False, description="pauses, each equally likely"
    )

    @model_validator(mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        if value == cls.word:
            return {}
        if value == {}:
            raise ValueError("expected uniform or choices; without a pause write none")
        return value

    @model_validator(mode="after")
    def _one_rule(self) -> Pause:
        given = self.model_fields_set
        if {"uniform_s", "choices_s"} <= given:
            raise ValueError("expected one of uniform and choices, got both")
        if "choices_s" in given and not self.choices_s:
            raise ValueError("expected at least one pause in choices; without a pause write none")
        if "step_s" in given and self.uniform_s is None:
            raise ValueError("expected uniform beside step")
        if self.uniform_s is not None:
            low, high, step = (units.milliseconds(t) for t in (*self.uniform_s, self.step_s))
            if (high - low) % step:
                raise ValueError("expected a uniform span that is a multiple of step")
            if (high - low) // step >= MAX_PAUSE_CHOICES:
                raise ValueError(f"expected at most {MAX_PAUSE_CHOICES} pauses; make step larger")
        return self

    @property
    def times_s(self) -> tuple[float, ...]:
        """The pauses to draw from, each equally likely; empty if there is no pause.

        A list, because that is what TGen's pause action draws from.
        """
        if self.uniform_s is None:
            return self.choices_s
        low, high, step = (units.milliseconds(t) for t in (*self.uniform_s, self.step_s))
        return tuple(units.seconds(ms) for ms in range(low, high + 1, step))


class Start(Model):
    """When the clients of a class begin."""

    after_s: Annotated[float, kinds.time()] = key(
        "0 s",
        alias="after",
        description="from the end of the bootstrap to the first client's start",
    )
    spread_s: Annotated[float, kinds.time()] = key(
        "0 s", alias="spread", description="the clients' starts are drawn uniformly from this span"
    )


class TrafficClass(Model):
    """One class of clients; each of them fetches one file after the other."""

    derived = frozenset({"full_count"})

    count: Annotated[int, _count] = key(description="how many clients")
    request_bytes: Annotated[int, kinds.size()] = key(
        alias="request", description="size of each download"
    )
    pause: Pause = key(
        "none", description="between a download's end and the next: `none` or a rule"
    )
    timeout_s: Annotated[float | None, kinds.optional_time()] = key(
        alias="timeout", description="a download that takes longer is given up"
    )
    stallout_s: Annotated[float | None, kinds.optional_time()] = key(
        alias="stallout", description="a download that gets no byte for this long is given up"
    )
    start: Start = key({}, description="when its clients begin")
    streams: Annotated[int, kinds.whole_number(1, MAX_STREAMS)] = key(
        1, description="how many downloads each client makes side by side"
    )
    stagger_s: Annotated[float, kinds.time()] = key(
        "0 s", alias="stagger", description="between the starts of a client's parallel downloads"
    )
    repeat: Annotated[str, kinds.choice("forever", "once")] = key(
        "forever", description="whether a download is followed by the next"
    )
    circuit: Annotated[str, kinds.choice("any", "one")] = key(
        "any",
        description="`one`: a run counts only if its log shows that all streams of each client "
        "shared one circuit of guard, middle and exit; takes `repeat: once`",
    )
    kind: Annotated[str, kinds.choice("tgen", "pieces")] = key(
        "tgen",
        description="`tgen`: a download is one stream; `pieces`: libtorrent over TCP fetches it "
        "from one server in requests of 16 KiB (see docs/explanation/slowstart.md)",
    )
    request_rule: Annotated[str, _identifier] = key(
        "slow-start",
        description="with `pieces`: a variant of `libtorrent-patches/variants.yaml`, whose rule "
        "decides how many requests are outstanding",
    )
    full_count: int = 0
    """`count` before SCALE."""


class Scheduler(Model):
    """Tor's channel scheduler."""

    name: Annotated[str, kinds.choice("KIST", "KISTLite", "Vanilla")] = key(
        "KIST", description="torrc `Schedulers`"
    )
    run_interval_s: Annotated[float, kinds.time(positive=True)] = key(
        "10 ms",
        alias="run_interval",
        description="torrc `KISTSchedRunInterval`, at most 100 ms; Vanilla ignores it",
    )


class Torrc(Model):
    """Further options of Tor, by who gets them. A later line in this order wins."""

    all: TorrcOptions = key({}, description="every Tor")
    authority: TorrcOptions = key({}, description="directory authorities")
    relay: TorrcOptions = key({}, description="relays")
    client: TorrcOptions = key({}, description="clients")


class TorSettings(Model):
    """Which Tor runs, and how it is set."""

    variants: tuple[Annotated[str, _identifier], ...] = key(
        strict=False,
        min_length=1,
        description="names from `tor-patches/variants.yaml`; their order is the order in figures",
    )
    baseline: Annotated[str, _identifier] = key(
        description="the variant that the others are compared with"
    )
    deployment: Annotated[Deployment, values.deployment()] = key(
        "all", description="who runs the variant; the others run the baseline"
    )
    scheduler: Scheduler = key({}, description="channel scheduler")
    trace: Annotated[Traced, values.traced(("exitguard", "guard", "exit", "middle"))] = key(
        "none",
        description="relays that write down when each cell passes "
        "(see docs/explanation/celltrace.md)",
    )
    consensus_params: dict[
        ParameterName, Annotated[int, kinds.whole_number(-(2**31), 2**31 - 1)]
    ] = key({}, description="network parameters that the authorities vote for")
    torrc: Torrc = key({}, description="further options")


class TimeSettings(Model):
    """The phases of a run, one after the other."""

    bootstrap_s: Annotated[float, kinds.time(positive=True)] = key(
        alias="bootstrap", description="Tor starts, builds its consensus and its first circuits"
    )
    warm_up_s: Annotated[float, kinds.time()] = key(
        alias="warm_up", description="clients start; not measured"
    )
    measured_s: Annotated[float, kinds.time(positive=True)] = key(
        alias="measured", description="streams that start in this span count"
    )
    drain_s: Annotated[float, kinds.time()] = key(
        alias="drain", description="streams that started in the measured span come to their end"
    )

    @property
    def measured_start_s(self) -> float:
        """Start of the measured span, since the start of the simulation."""
        return self.bootstrap_s + self.warm_up_s

    @property
    def measured_end_s(self) -> float:
        """End of the measured span, since the start of the simulation."""
        return self.measured_start_s + self.measured_s

    @property
    def stop_s(self) -> float:
        """End of the simulation."""
        return self.measured_end_s + self.drain_s


class TgenOptions(Model):
    """How TGen logs."""

    heartbeat_s: Annotated[float, kinds.time(positive=True)] = key(
        "1 s", alias="heartbeat", description="between the log lines that goodput is read from"
    )
    loglevel: Annotated[str, kinds.choice("message", "info")] = key(
        "message", description="`info` adds a line for every activity of every stream: large logs"
    )


class ShadowOptions(Model):
    """Options of Shadow, handed on as written; see Shadow's configuration reference."""

    general: Annotated[
        RawOptions, values.raw_options(shadow_options.GENERAL, shadow_options.REFUSED)
    ] = key({}, description="Shadow's `general` section")
    experimental: Annotated[
        RawOptions, values.raw_options(shadow_options.EXPERIMENTAL, shadow_options.REFUSED)
    ] = key({}, description="Shadow's `experimental` section")
    host_option_defaults: Annotated[
        RawOptions, values.raw_options(shadow_options.HOST_OPTION_DEFAULTS, shadow_options.REFUSED)
    ] = key({}, description="Shadow's `host_option_defaults` section")


class UmlOptions(Model):
    """Options of the embedded engine. Only `congestion_control` bears on results."""

    congestion_control: Annotated[str, kinds.choice("cubic", "reno")] = key(
        "cubic",
        description="TCP's congestion control on all hosts; `cubic` is what Linux has, `reno` what "
        "Shadow's own TCP has",
    )
    memory_bytes: Annotated[int | None, kinds.automatic_size()] = key(
        "automatic",
        alias="memory",
        description="the most that all hosts together may take; `automatic`: what a network of "
        "this size needs",
    )
    stall_timeout_s: Annotated[float, kinds.time(positive=True)] = key(
        "120 s",
        alias="stall_timeout",
        description="a run is given up when a second of simulated time takes longer than this",
    )


class EngineSettings(Model):
    """How the simulation is done, as far as it is not the network's or Tor's matter."""

    tgen: TgenOptions = key({}, description="TGen's logs")
    shadow: ShadowOptions = key({}, description="only read when Shadow is the engine")
    uml: UmlOptions = key({}, description="only read when the embedded engine runs")


class Settings(Model):
    """Everything that determines a run but its variant and seed."""

    network: NetworkSettings = key(description="hosts and the network between them")
    traffic: dict[ClassName, TrafficClass] = key(
        min_length=1, description="classes of clients by name, for instance `web` and `bulk`"
    )
    tor: TorSettings = key(description="variants and Tor's settings")
    time: TimeSettings = key(description="phases of a run")
    engine: EngineSettings = key({}, description="options of the simulation itself")

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants, in the order of figures."""
        return self.tor.variants

    @property
    def baseline(self) -> str:
        """The variant that the others are compared with."""
        return self.tor.baseline

    @property
    def classes(self) -> dict[str, dict[str, Any]]:
        """What the analysis is told of each class of clients."""
        return {
            name: {
                "timeout_s": entry.timeout_s,
                "stallout_s": entry.stallout_s,
                "request_bytes": entry.request_bytes,
                "count": entry.count,
            }
            for name, entry in self.traffic.items()
        }

    @property
    def client_count(self) -> int:
        """Clients of all classes, and the perf clients."""
        return sum(c.count for c in self.traffic.values()) + self.network.perf_clients

    @property
    def host_count(self) -> int:
        """All simulated hosts."""
        net = self.network
        return net.authorities + net.relays.count + net.servers.count + self.client_count


class LevelEntry(Model):
    """One level of an experiment: the same comparison under another setting."""

    label: Annotated[str, kinds.text()] = key(description="what figures and tables call it")
    overrides: Settings | None = key(
        None,
        description="keys of `network`, `traffic`, `tor`, `time` and `engine` that differ here",
    )


class Figure(Model):
    """One figure of the report."""

    id: Annotated[str, _identifier] = key(description="name of its files")
    kind: Annotated[str, kinds.choice(*FIGURE_KINDS)] = key(description="what it shows")
    level: Annotated[str, _identifier] | None = key(
        None, description="which level it shows; not needed where there is only one"
    )
    title: Annotated[str, kinds.text()] | None = key(
        None, description="its title; without it one made from kind and level"
    )
    paper: Annotated[int, _positive_count] | None = key(
        None, description="number of the paper's figure that it repeats"
    )


class Header(Model):
    """What an experiment file holds besides the settings of its runs."""

    title: Annotated[str, kinds.text()] = key(description="one line, for lists and reports")
    description: Annotated[str, kinds.text()] = key(description="what it asks, and why")
    paper: Annotated[str, kinds.text()] | None = key(
        None, description="the section or figures it repeats"
    )
    seeds: Annotated[tuple[int, ...], values.seeds()] = key(
        description="a number n (seeds 1 to n) or a list; every variant runs with every seed"
    )
    levels: dict[LevelName, LevelEntry] = key(
        {}, description="settings to compare; without it one level, named like the experiment"
    )
    figures: tuple[Figure, ...] = key(
        (), strict=False, description="figures of the report; without it each kind for each level"
    )
    margins: dict[MetricName, Annotated[float, kinds.fraction(positive=True)]] = key(
        {},
        description="what counts as equivalent, by metric: a share of the baseline, for rates "
        "percentage points; without it as in docs/reference/statistics.md",
    )


class CellTimes(Model):
    """A line of numbers on cells, as the report has them: milliseconds from inbuf to flush."""

    cells: Annotated[int, kinds.whole_number(1, 10**12)] = key(description="how many")
    minimum_ms: Annotated[float, kinds.number()] = key(description="the shortest time")
    quartile1_ms: Annotated[float, kinds.number()] = key(description="the first quartile")
    median_ms: Annotated[float, kinds.number()] = key(description="the median")
    mean_ms: Annotated[float, kinds.number()] = key(description="the mean")
    quartile3_ms: Annotated[float, kinds.number()] = key(description="the third quartile")
    maximum_ms: Annotated[float, kinds.number()] = key(description="the longest time")


class CellTimesOfGroups(Model):
    """Numbers on the cells of one level, by circuits."""

    all: CellTimes | None = key(None, description="all circuits")
    busiest: CellTimes | None = key(None, description="the busiest circuit")
    quiet: CellTimes | None = key(None, description="quiet circuits")
    busy: CellTimes | None = key(None, description="busy circuits")


class PublishedCellTimes(Model):
    """What others measured, for the report's table of cell times."""

    source: Annotated[str, kinds.text()] = key(
        description="where the numbers come from, as short as a label"
    )
    role: Annotated[str, kinds.choice(*RELAY_ROLES)] = key(
        description="the table of which relays shows them"
    )
    levels: dict[LevelName, CellTimesOfGroups] = key(
        description="the numbers beside each level; levels that the experiment lacks do no harm"
    )


class TorHeader(Header):
    """The same of an experiment with Tor."""

    published_cell_times: PublishedCellTimes | None = key(
        None, description="what others measured of cells, shown beside the experiment's own"
    )


class ExperimentFile(Settings, TorHeader):
    """A whole experiment file. What it extends may supply any of its keys."""

    extends: Annotated[tuple[str, ...], values.file_names()] = key(
        (),
        validate_default=False,
        description="a file or a list of files, relative to `experiments/` (with `./` or `../` to "
        "this file), whose keys this file adds to or replaces",
    )
