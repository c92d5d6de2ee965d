"""From an experiment to a plan: which runs there are, by what name, and what they will need.

The plan stands in `results/<name>/plan.json` with all that a job process needs to compose a run
again; `study.json` beside it is what the analysis is told (see analysis/formats/study.py).
"""

from __future__ import annotations

import math
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from analysis.errors import AnalysisError
from analysis.formats.columns import FORMAT as RECORDS_FORMAT
from onionlab.engines import Engine, open_engine
from onionlab.errors import UserError
from onionlab.experiment import AnySettings, Experiment, Settings, load
from onionlab.experiment.peers import KIND as PEERS
from onionlab.programs.libtorrent.build import ensure_peers, peer_program
from onionlab.programs.libtorrent.variants import PeerVariant, load_peer_variants
from onionlab.rundir.peers import compose_peers
from onionlab.rundir.verify_peers import verify_peer_logs
from onionlab.runs.presence import end_with_starter
from onionlab.programs.registry import Look
from onionlab.rundir import RunDirectory, compose
from onionlab.rundir.compose import engine_options, mean_capacity_bit_per_s, tor_program
from onionlab.rundir.keycache import has_keys
from onionlab.runs.store import Store, read_json, write_json
from onionlab.programs.tor.build import ensure_series
from onionlab.programs.tor.variants import Variant, load_registry, load_variants
from onionlab.rundir.trace import traced_series
from onionlab.rundir.verify_tor import verify_tor_logs
from onionlab.programs.building import at_once

if TYPE_CHECKING:
    from analysis.inference.sequential import Looks

PLAN_FORMAT = 1
SIDE_BY_SIDE_RUNS = 6
"""From so many runs on, a second process composes them faster than it takes to start, though all
keys are there."""

# What Tor 0.4.9 uses where the consensus says nothing: Vegas.
TOR_CC_ALG = 2
RECORDS = f"records-v{RECORDS_FORMAT}"

# Measured on full-size and small networks (docs/explanation/performance.md): a Tor or TGen under Shadow holds
# this much private memory, a host without Tor only TGen's share.
_TOR_BYTES = 4 * 2**20
_TGEN_BYTES = 3 * 2**19
_ENGINE_BYTES = 250 * 2**20
# Logs: TGen's heartbeat lines and Tor's own state files.
_DISK_BYTES_PER_CLIENT_S = 220
_DISK_BYTES_PER_HOST = 150 * 2**10
# Two peers: a line of each kind every few milliseconds.
_PEERS_DISK_BYTES = 20 * 2**20


@dataclass(frozen=True)
class Request:
    """What the user asked for, as given on the command line.

    variants: some of the experiment's, in its order; empty for all.
    """

    experiment: str
    scale: float | None = None
    seeds: int | list[int] | None = None
    variants: tuple[str, ...] = ()
    engine: str = "auto"
    shadow: str | None = None
    tgen: str | None = None


@dataclass(frozen=True)
class PlannedRun:
    """One run: its name in the store and what it is in this experiment."""

    run_id: str
    level: str
    variant: str
    seed: int

    @property
    def title(self) -> str:
        """For people: which run it is."""
        return f"{self.level} {self.variant} seed {self.seed}"


@dataclass(frozen=True)
class Resources:
    """What one run needs, estimated. processes: of the simulation, each with its threads."""

    memory_bytes: int
    disk_bytes: int
    processes: int


@dataclass(frozen=True)
class Plan:
    """All runs of an experiment, and where results go."""

    request: Request
    runs: tuple[PlannedRun, ...]
    store: Path
    out: Path
    cpus_per_run: int
    resources: Resources

    @property
    def file(self) -> Path:
        """Where the plan is written."""
        return self.out / "plan.json"

    @property
    def study(self) -> Path:
        """What the analysis reads."""
        return self.out / "study.json"


class Built(Protocol):
    """A program that was built for a run, and what manifests record of it."""

    @property
    def path(self) -> Path:
        """The executable."""

    @property
    def sha256(self) -> str:
        """Of the executable."""

    @property
    def version(self) -> str:
        """What it is a version of is plain from its name."""

    @property
    def source(self) -> dict[str, Any]:
        """Where it comes from; JSON."""


class Bench(ABC):
    """An experiment with everything that composing its runs takes: variants, binaries, engine.

    One subclass for each kind of experiment; `open_bench` chooses.

    Attributes:
        variants: all that the checkout has, by name.
        selected: those whose runs were asked for; needed: those, and the baselines.
        programs: what was built, by the base name of the executable, as run directories name it.
    """

    def __init__(
        self, root: Path, experiment: Experiment, request: Request, say: Callable[[str], None]
    ) -> None:
        self.root = root
        self.experiment = experiment
        levels = self.experiment.levels.values()
        known = dict.fromkeys(name for level in levels for name in level.settings.variants)
        for name in request.variants:
            if name not in known:
                raise UserError(
                    f"{self.experiment.name} has no variant {name!r}",
                    f"its variants are: {', '.join(known)}",
                )
        self.selected = [name for name in known if not request.variants or name in request.variants]
        self.needed = sorted({*self.selected, *(level.settings.baseline for level in levels)})
        self.variants: Mapping[str, Any] = self.load_variants()
        self.engine: Engine
        self.programs: Mapping[str, Built]
        # The embedded engine builds a kernel.
        self.engine, self.programs = at_once(
            lambda: open_engine(
                request.engine, root=root, say=say, shadow=request.shadow, tgen=request.tgen
            ),
            lambda: self.build(say),
        )

    @abstractmethod
    def load_variants(self) -> Mapping[str, Any]:
        """Return all variants that the checkout has for this kind of experiment, by name."""

    @abstractmethod
    def build(self, say: Callable[[str], None]) -> Mapping[str, Built]:
        """Build what the runs take and is not built yet; the engine's own is built meanwhile."""

    def settings(self, level: str) -> Any:
        """Return one level's settings."""
        return self.experiment.levels[level].settings

    def coordinates(self, level: str) -> Mapping[str, float]:
        """Where a level lies among others, as far as a figure shows several of them."""
        return {}

    @abstractmethod
    def compose(self, level: str, variant: str, seed: int) -> RunDirectory:
        """Compose one run."""

    @abstractmethod
    def executables(self) -> dict[str, Path]:
        """Return all executables that hosts can run, by base name."""

    @abstractmethod
    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        """Check the logs below `hosts`; return how many hosts proved what.

        Raises RunRefusedError.
        """


class Workbench(Bench):
    """An experiment with Tor."""

    def load_variants(self) -> Mapping[str, Variant]:
        """Return the variants of Tor."""
        return load_variants(self.root)

    def build(self, say: Callable[[str], None]) -> Mapping[str, Built]:
        """Build Tor, and libtorrent's peers where clients fetch in pieces."""
        series = {self.variants[name].series for name in self.needed}
        levels = self.experiment.levels
        if any(self.settings(name).tor.trace.where != "none" for name in levels):
            series |= {traced_series(name) for name in series}
        programs: dict[str, Built] = {
            tor_program(built.series): built
            for built in ensure_series(self.root, series, say=say).values()
        }
        rules = {
            entry.request_rule
            for level in levels.values()
            for entry in level.settings.traffic.values()
            if entry.kind == "pieces"
        }
        if rules:
            peers = ensure_peers(self.root, sorted(rules), say=say)
            programs |= {peer_program(name): built for name, built in peers.items()}
        return programs

    def compose(self, level: str, variant: str, seed: int) -> RunDirectory:
        """Compose one run."""
        settings = self.settings(level)
        return compose(
            self.root,
            settings,
            variant=self.variants[variant],
            baseline=self.variants[settings.tor.baseline],
            seed=seed,
            engine=self.engine,
        )

    def coordinates(self, level: str) -> Mapping[str, float]:
        """Rate of the bottleneck, parallel streams and congestion control of a level."""
        return _coordinates(self.root, self.settings(level))

    def executables(self) -> dict[str, Path]:
        """Return all executables that hosts can run, by base name."""
        own = {name: built.path for name, built in self.programs.items()}
        return own | self.engine.programs

    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        """Check that every Tor ran the circuit policy that it had to."""
        return verify_tor_logs(hosts, run.expectations, load_registry(self.root).proof_prefixes)


class PeersBench(Bench):
    """An experiment with libtorrent's peers alone."""

    def load_variants(self) -> Mapping[str, PeerVariant]:
        """Return the variants of libtorrent's peers."""
        return load_peer_variants(self.root)

    def build(self, say: Callable[[str], None]) -> Mapping[str, Built]:
        """Build libtorrent's peers."""
        peers = ensure_peers(self.root, self.needed, say=say)
        return {peer_program(name): built for name, built in peers.items()}

    def compose(self, level: str, variant: str, seed: int) -> RunDirectory:
        """Compose one run."""
        return compose_peers(
            self.settings(level), variant=self.variants[variant], seed=seed, engine=self.engine
        )

    def executables(self) -> dict[str, Path]:
        """Return all executables that hosts can run, by base name."""
        return {name: built.path for name, built in self.programs.items()}

    def verify(self, hosts: Path, run: RunDirectory) -> dict[str, int]:
        """Check that every peer followed the request rule that it had to."""
        return verify_peer_logs(hosts, run.expectations)


_BENCHES: Mapping[str | None, type[Bench]] = {None: Workbench, PEERS: PeersBench}


def open_bench(root: Path, request: Request, say: Callable[[str], None]) -> Bench:
    """Return the bench of an experiment, with all programs that its runs take built.

    Raises UserError where the experiment is wrong, or a tool or a source is missing.
    """
    experiment = load(request.experiment, root=root).with_overrides(
        scale=request.scale, seeds=request.seeds
    )
    return _BENCHES[experiment.kind](root, experiment, request, say)


def _require_margins(experiment: Experiment) -> None:
    # Behind it is scipy.stats, which takes longer to import than all else together; the jobs of a
    # plan, a process each, have no use for it.
    from analysis.judgement.margins import with_margins

    try:
        with_margins(experiment.margins)
    except AnalysisError as error:
        raise UserError(f"{experiment.name}: margins: {error.message}", error.hint) from error


def make_plan(
    root: Path,
    request: Request,
    say: Callable[[str], None],
    *,
    out: Path | None = None,
    looks: Looks | None = None,
) -> Plan:
    """Build what is missing, name all runs and write plan.json and study.json.

    out: where they go; by default `results/<name>`. looks: when the results were looked at so far,
    where seeds are added until they suffice. Raises UserError for everything that can be known
    before a run starts.
    """
    bench = open_bench(root, request, say)
    experiment = bench.experiment
    _require_margins(experiment)
    for warning in experiment.warnings:
        say(f"note: {warning}")
    plan = Plan(
        request=request,
        runs=tuple(_name_runs(bench, request)),
        store=root / "runs",
        out=out or root / "results" / experiment.name,
        cpus_per_run=max(
            bench.engine.cpus_per_run(engine_options(level.settings, bench.engine.name))
            for level in experiment.levels.values()
        ),
        resources=estimate_resources(experiment),
    )
    write_json(plan.file, _plan_json(plan))
    write_json(plan.study, _study_json(bench, plan, looks))
    return plan


def _name_runs(bench: Bench, request: Request) -> list[PlannedRun]:
    """All runs of an experiment, by seed, level and variant."""
    seeds = bench.experiment.seeds
    processes = min(len(seeds), len(os.sched_getaffinity(0)))
    # A seed's keys take seconds to draw.
    slow = sum(not has_keys(bench.root, seed) for seed in seeds) > 1
    many = len(seeds) * len(_composed(bench)) >= SIDE_BY_SIDE_RUNS
    if processes == 1 or not (slow or many):
        found = [_name_runs_of_seed(bench, seed) for seed in seeds]
    else:
        # Not forked: this process may have threads.
        with ProcessPoolExecutor(
            processes, get_context("spawn"), _open_helper, (bench.root, request)
        ) as pool:
            found = list(pool.map(_name_in_helper, seeds))
    return [run for runs in found for run in runs]


def _composed(bench: Bench) -> list[tuple[str, str]]:
    """Level and variant of each run of a seed."""
    return [
        (name, variant)
        for name, level in bench.experiment.levels.items()
        for variant in level.settings.variants
        if variant in bench.selected
    ]


def _name_runs_of_seed(bench: Bench, seed: int) -> list[PlannedRun]:
    return [
        PlannedRun(
            bench.compose(level, variant, seed).run_id(bench.programs, bench.engine),
            level,
            variant,
            seed,
        )
        for level, variant in _composed(bench)
    ]


_helper: Bench | None = None
"""The bench of a process that composes runs for another one."""


def _open_helper(root: Path, request: Request) -> None:
    global _helper
    end_with_starter()
    _helper = open_bench(root, request, lambda line: None)


def _name_in_helper(seed: int) -> list[PlannedRun]:
    assert _helper is not None
    return _name_runs_of_seed(_helper, seed)


def read_plan(path: Path) -> Plan:
    """Read a plan that make_plan wrote. Raises UserError where it is no such file."""
    try:
        data = read_json(path)
        if data["format"] != PLAN_FORMAT:
            raise ValueError(f"its format is {data['format']}, this program reads {PLAN_FORMAT}")
        return Plan(
            request=Request(**{**data["request"], "variants": tuple(data["request"]["variants"])}),
            runs=tuple(PlannedRun(**run) for run in data["runs"]),
            store=Path(data["store"]),
            out=path.parent,
            cpus_per_run=data["cpus_per_run"],
            resources=Resources(**data["resources"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no plan: {error}", "make it anew: make generate NAME=..."
        ) from error


def estimate_resources(experiment: Experiment) -> Resources:
    """Estimate what the largest run of an experiment needs."""
    levels = [_estimate_level(level.settings) for level in experiment.levels.values()]
    return Resources(
        memory_bytes=max(level.memory_bytes for level in levels),
        disk_bytes=max(level.disk_bytes for level in levels),
        processes=max(level.processes for level in levels),
    )


def _estimate_level(settings: AnySettings) -> Resources:
    if not isinstance(settings, Settings):
        return Resources(_ENGINE_BYTES, _PEERS_DISK_BYTES, 2)
    clients, servers = settings.client_count, settings.network.servers.count
    tors = settings.host_count - servers
    return Resources(
        memory_bytes=_ENGINE_BYTES + tors * _TOR_BYTES + (clients + servers) * _TGEN_BYTES,
        disk_bytes=round(
            settings.host_count * _DISK_BYTES_PER_HOST
            + clients
            * settings.time.stop_s
            * _DISK_BYTES_PER_CLIENT_S
            / max(settings.engine.tgen.heartbeat_s, 0.1)
        ),
        processes=tors + clients + servers,
    )


def update_provenance(plan: Plan) -> None:
    """Put what the finished runs used, from their manifests, into study.json."""
    study = read_json(plan.study)
    store = Store(plan.store)
    study["provenance"]["runs"] = [
        {
            "run_id": run.run_id,
            "level": run.level,
            "variant": run.variant,
            "seed": run.seed,
            **{
                key: manifest[key]
                for key in ("wall_s", "cpu_s", "peak_memory_bytes", "proofs", "host")
            },
        }
        for run in plan.runs
        for manifest in [read_json(store.manifest(run.run_id))]
    ]
    write_json(plan.study, study)


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "format": PLAN_FORMAT,
        "request": asdict(plan.request),
        "runs": [asdict(run) for run in plan.runs],
        "store": str(plan.store),
        "cpus_per_run": plan.cpus_per_run,
        "resources": asdict(plan.resources),
    }


def _study_json(bench: Bench, plan: Plan, looks: Looks | None) -> dict[str, Any]:
    experiment = bench.experiment
    baselines = {level.settings.baseline for level in experiment.levels.values()}
    if len(baselines) > 1:
        raise UserError(
            f"{experiment.name}: its levels have different baselines: {sorted(baselines)}"
        )
    baseline = baselines.pop()
    return {
        "format": 1,
        "name": experiment.name,
        "title": experiment.title,
        "description": experiment.description,
        "baseline": baseline if baseline in bench.selected else None,
        "variants": [_variant_json(bench.variants[name]) for name in bench.selected],
        "levels": [
            _level_json(name, level.label, level.settings, bench.coordinates(name))
            for name, level in experiment.levels.items()
        ],
        "figures": [
            {"id": f.id, "kind": f.kind, "level": f.level, "title": f.title, "paper": f.paper}
            for f in experiment.figures
        ],
        "runs": [
            {
                "run_id": run.run_id,
                "level": run.level,
                "variant": run.variant,
                "seed": run.seed,
                "directory": run.run_id,
                "records": f"{run.run_id}/{RECORDS}",
            }
            for run in plan.runs
        ],
        "margins": experiment.margins,
        "published_cell_times": _published_json(experiment),
        "looks": None if looks is None else asdict(looks),
        "asked": experiment.asked,
        "shrunk": experiment.shrunk,
        "provenance": {
            "engine": bench.engine.identity,
            "tor": [
                {
                    "program": name,
                    "series": getattr(built, "series", None),
                    "version": built.version,
                    "sha256": built.sha256,
                    "source": built.source,
                }
                for name, built in sorted(bench.programs.items())
            ],
            "machine": host_facts(),
        },
    }


def _published_json(experiment: Experiment) -> dict[str, Any] | None:
    published = experiment.published_cell_times
    if published is None:
        return None
    groups = {
        level: {
            group: {"count" if key == "cells" else key: value for key, value in times.items()}
            for group, times in by_group.model_dump(exclude_none=True).items()
        }
        for level, by_group in published.levels.items()
        if level in experiment.levels
    }
    return {"source": published.source, "role": published.role, "levels": groups}


def _variant_json(variant: Look) -> dict[str, Any]:
    keys = ("name", "label", "description", "color", "marker", "linestyle")
    return {key: getattr(variant, key) for key in keys}


def _coordinates(root: Path, settings: Settings) -> dict[str, float]:
    limits_bit_per_s = [
        min(
            entry.bandwidth_rate_bit_per_s or math.inf,
            mean_capacity_bit_per_s(root, entry) * settings.network.capacity_total_factor(role),
        )
        for role, entry in settings.network.relays.items()
        if entry.count
    ]
    return {
        "bottleneck_kib_per_s": round(min(limits_bit_per_s) / 8192, 3),
        "streams": max(entry.streams for entry in settings.traffic.values()),
        "cc_alg": settings.tor.consensus_params.get("cc_alg", TOR_CC_ALG),
    }


def _level_json(
    name: str, label: str, settings: AnySettings, coordinates: Mapping[str, float]
) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "measured_start_s": settings.time.measured_start_s,
        "measured_end_s": settings.time.measured_end_s,
        "stop_s": settings.time.stop_s,
        "coordinates": dict(coordinates),
        "classes": settings.classes,
    }


def host_facts() -> Mapping[str, Any]:
    """What the machine is, as far as it bears on times (never on results)."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
    }
