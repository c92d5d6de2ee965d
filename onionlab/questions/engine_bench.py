"""What the embedded engine costs against Shadow on this machine, and whether that has changed.

    bench/history.jsonl     a line for each measurement, of any machine
    build/bench/            plans, and the run that is being made

Both engines make the same runs (network, keys and programs), in turns and one at a time, so that a
machine that slows down slows both down. What a run leaves is removed when its records are hashed: a
cost counts for these records alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from analysis.comparison.bench_steps import CostSeries, series_of
from analysis.formats.bench_history import (
    BenchCase,
    BenchMeasurement,
    BenchRepetition,
    BenchSide,
    add_to_bench_history,
    read_bench_history,
)
from analysis.formats.files import BENCH_HISTORY, RECORDS
from analysis.formats.manifest import identity_hash, read_manifest
from analysis.formats.plan_file import PlannedRun, Request
from analysis.records.extract import extract
from onionlab.engines import (
    AUTO,
    BY_PTRACE,
    EMBEDDED,
    PREFERRED,
    engine_that_would_run,
    open_engine,
)
from onionlab.engines.processes import kill_processes_below
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.questions.open_sets import record_hashes
from onionlab.runs.beside import Done, beside
from onionlab.runs.commit import project_name
from onionlab.runs.costs.calibration import (
    MEASURES,
    Calibration,
    NoCalibrationError,
    calibrate,
    cpus_of_runs,
    median_of,
)
from onionlab.runs.costs.estimate import costs_of_runs
from onionlab.runs.costs.model import CostModel, load_model, slowness
from onionlab.runs.costs.past import MACHINE_FACTS
from onionlab.runs.costs.words import time_text
from onionlab.runs.cpus import holders
from onionlab.runs.host_facts import host_facts
from onionlab.runs.places import require_writable
from onionlab.runs.plan import Plan, write_plan
from onionlab.runs.planning import make_plan
from onionlab.runs.presence import presence
from onionlab.runs.store import Store
from onionlab.runs.workflow.drive import running_states
from onionlab.runs.workflow.progress import ProgressView

MOST_WALL_TO_CPU = 1.25
"""On an idle machine a run takes 1.01 to 1.05 times its CPU time by the clock."""
MOST_OTHERS_CPUS = 0.25
"""What others may take of all CPUs while a run is made, in CPUs: caches and memory are shared.

The kernel's threads are no others: on some hosts one of them looks at the memory of a large run
all the time, at up to half a CPU, whatever the engine.
"""
PF_KTHREAD = 0x0020_0000
"""In a process's flags, field 9 of /proc/PID/stat: a thread of the kernel (linux/sched.h)."""
POLL_S = 0.5
PATIENCE_S = 10.0
"""For a run that is told to end."""
TRIES = 3
"""How often a repetition is made until nothing disturbs it; the last one stays, whatever it is."""
PROBES = 5
"""A measurement of the machine is the median of so many, of two thirds of a second each."""
SPELL_S = 10.0
"""How long to wait for the end of a slow spell of seconds, as neighbours on a host make them."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class BenchEntry:
    """Runs that are measured: an experiment with one variant, at some scale, of some seeds."""

    experiment: str
    variant: str
    seeds: tuple[int, ...]
    scale: float | None = None


SHORT = (BenchEntry("quick", "ewma", (1,)),)
THOROUGH = (*SHORT, BenchEntry("swrr-5mid", "ewma", (1, 2, 3), 0.1))
FULL_SIZE = (BenchEntry("swrr-5mid", "ewma", (1,)),)


@dataclass(frozen=True)
class Way:
    """How runs are made.

    Attributes:
        name: of the side in a measurement.
        engine: name of the engine.
        environment: variables that a run gets, whatever this command's own.
        times_as_long: as the estimate of a run, which knows the engine's usual way alone.
    """

    name: str
    engine: str
    environment: Mapping[str, str] = field(default_factory=lambda: {BY_PTRACE: ""}, hash=False)
    times_as_long: float = 1.0


PTRACE = Way("uml-ptrace", EMBEDDED, {BY_PTRACE: "1"}, times_as_long=2.5)
"""The embedded engine as it is where its kernel cannot run inside of its processes.

It takes 2.0 to 3.6 times as long there (docs/explanation/performance.md).
"""


@dataclass(frozen=True)
class Bench:
    """A measurement and what follows from it.

    Attributes:
        measurement: as it stands in the history.
        earlier: the history without it.
        series: its ratios, searched for steps.
        history: the file.
    """

    measurement: BenchMeasurement
    earlier: tuple[BenchMeasurement, ...]
    series: tuple[CostSeries, ...]
    history: Path

    @property
    def alarm(self) -> bool:
        """Whether a cost has stepped up, and this measurement is the first to show it."""
        return any(one.alarms for one in self.series)


@dataclass(frozen=True)
class Made:
    """One run, which is gone again: what it took and what it left."""

    took: BenchRepetition
    records: str
    engine: dict[str, str]
    programs: dict[str, str]


MakeRun = Callable[[Path, Plan, PlannedRun, Way], Made]
PlanRuns = Callable[[Path, Request, Path, Say], Plan]


class _Speed:
    """How fast the machine is, measured before and after each run."""

    def __init__(
        self, model: CostModel, engines: Sequence[str], measure: Callable[[], Calibration]
    ) -> None:
        self._model, self._engines, self._measure = model, engines, measure
        self.measured = [measure()]

    def look(self) -> None:
        """Measure it after a run.

        Where it differs from before, it is measured once more: a slow spell that only the
        measurement fell into says nothing of the run.
        """
        found = self._measure()
        if list(self._changes([self.measured[-1], found])):
            time.sleep(SPELL_S)
            again = self._measure()
            found = min(found, again, key=self._distance)
        self.measured.append(found)

    def of_last_run(self, engine: str) -> float:
        """How many times slower than the reference the machine was beside the last run."""
        return statistics.geometric_mean(self._slow(engine, self.measured[-2:]))

    def mean(self, engine: str) -> float:
        """The same, of all runs."""
        return statistics.geometric_mean(self._slow(engine, self.measured))

    def changes_of_last(self, runs: int) -> Iterator[str]:
        """What changed too much while the last runs were made, before and behind them included."""
        return self._changes(self.measured[-runs - 1 :])

    def _changes(self, measured: Sequence[Calibration]) -> Iterator[str]:
        for engine in self._engines:
            slow = self._slow(engine, measured)
            factor = max(slow) / min(slow)
            if factor > self._model.drift_factor:
                slower = slow.index(max(slow)) > slow.index(min(slow))
                yield (
                    f"the machine's speed at {engine}'s work changed meanwhile, x "
                    f"{1 / factor if slower else factor:.2f}"
                )

    def _slow(self, engine: str, measured: Sequence[Calibration]) -> list[float]:
        exponents, reference = self._model.of(engine).speed, self._model.reference
        return [slowness(exponents, one, reference) for one in measured]

    def _distance(self, found: Calibration) -> float:
        """From the measurement before, at the work at which it is largest."""
        both = [self._slow(engine, [self.measured[-1], found]) for engine in self._engines]
        return max(abs(math.log(now / before)) for before, now in both)


@dataclass
class _Runs:
    """All runs of a measurement.

    Attributes:
        made: number of the entry, way and seed -> repetitions.
        marks: what disturbed repetitions that stay.
        made_again: what disturbed those that were made again.
    """

    made: dict[tuple[int, Way, int], list[Made]] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    made_again: list[str] = field(default_factory=list)


def run_bench(
    root: Path,
    entries: Sequence[BenchEntry],
    *,
    repetitions: int,
    state: Path,
    shadow: str | None,
    tgen: str | None,
    say: Say,
    by_ptrace: bool = False,
    plan_runs: PlanRuns | None = None,
    make_run: MakeRun | None = None,
    measure_machine: Callable[[], Calibration] | None = None,
    when: datetime | None = None,
) -> Bench:
    """Measure, judge, and add the measurement to the history.

    Args:
        root: the checkout.
        entries: what is run.
        repetitions: how often each run is made on each engine.
        state: directory of the history.
        shadow: path of the user's Shadow, else looked for.
        tgen: the same of TGen.
        say: takes lines on what is done.
        by_ptrace: whether the embedded engine makes each run by ptrace too.
        plan_runs: plans an entry for an engine (for tests).
        make_run: makes a run (for tests).
        measure_machine: measures the CPU (for tests).
        when: the time of the measurement.

    Raises:
        UserError: the history is damaged or cannot be written, or another measurement is under way
            (before anything runs), or a run fails. Nothing is added to the history then.
    """
    plan_runs, make_run = plan_runs or _plan, make_run or make_and_remove
    measure_machine = measure_machine or _measured_machine
    path, place = state / BENCH_HISTORY, build_directory(root) / "bench"
    require_writable(state)
    with _locked(place):
        earlier = read_bench_history(path)
        measured_at = (when or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
        engines = engines_here(root, shadow, tgen, say)
        ways = [*([PTRACE] if by_ptrace else []), *(Way(name, name) for name in engines)]
        requests = {
            (entry, engine): _request(entry, engine, shadow, tgen)
            for entry in entries
            for engine in engines
        }
        asked = [(requests[entry, way.engine], way) for entry in entries for way in ways]
        _say_cost(root, asked, repetitions, say)
        made_plans = {key: plan_runs(root, one, place, say) for key, one in requests.items()}
        plans = [{way: made_plans[entry, way.engine] for way in ways} for entry in entries]
        speed = _Speed(load_model(root), engines, measure_machine)
        count = sum(len(entry.seeds) for entry in entries) * len(ways) * repetitions
        with _nothing_left(place / "runs"), ProgressView(total=count) as view:
            runs = _make_all(root, entries, plans, repetitions, make_run, speed, view)
        cases = _cases(entries, plans, runs.made)
        measurement = _measurement(measured_at, cases, engines, runs, speed)
        series = series_of(earlier, measurement, EMBEDDED, PREFERRED)
        add_to_bench_history(path, measurement)
    return Bench(measurement, tuple(earlier), tuple(series), path)


def engines_here(root: Path, shadow: str | None, tgen: str | None, say: Say) -> list[str]:
    """The embedded engine, and Shadow where it is installed; says where it is left out.

    Raises UserError where Shadow was named and is not there.
    """
    try:
        open_engine(PREFERRED, root=root, say=say, shadow=shadow, tgen=tgen)
    except UserError as missing:
        if engine_that_would_run(AUTO, root=root, shadow=shadow, tgen=tgen) == PREFERRED:
            raise
        say(f"{PREFERRED} is left out, and with it all ratios to it: {missing.message}")
        return [EMBEDDED]
    return [EMBEDDED, PREFERRED]


def _request(entry: BenchEntry, engine: str, shadow: str | None, tgen: str | None) -> Request:
    return Request(
        entry.experiment,
        scale=entry.scale,
        seeds=list(entry.seeds),
        variants=(entry.variant,),
        engine=engine,
        shadow=shadow,
        tgen=tgen,
        repeats=1,
    )


def _say_cost(
    root: Path, requests: Sequence[tuple[Request, Way]], repetitions: int, say: Say
) -> None:
    """How many runs there will be and how long they take; they are made though they be there."""
    count, wall_s = 0, 0.0
    for request, way in requests:
        assert isinstance(request.seeds, list)
        of_engine = len(request.seeds) * repetitions
        costs = costs_of_runs(root, request).values()
        count += of_engine * len(costs)
        of_runs_s = sum(cost.wall_s.middle for cost in costs)
        wall_s += of_engine * of_runs_s * way.times_as_long
    runs = "1 run" if count == 1 else f"{count} runs, one after the other"
    say(f"cost: {runs}, about {time_text(wall_s)} on an idle machine")


def _plan(root: Path, request: Request, place: Path, say: Say) -> Plan:
    """Plan an entry for one engine, with a store of its own: its runs are made again each time."""
    out = place / f"{request.experiment}-{request.scale or 1:g}-{request.engine}"
    plan = replace(make_plan(root, request, say, out=out), store=place / "runs")
    write_plan(plan)
    return plan


def _make_all(
    root: Path,
    entries: Sequence[BenchEntry],
    plans: Sequence[dict[Way, Plan]],
    repetitions: int,
    make_run: MakeRun,
    speed: _Speed,
    view: ProgressView,
) -> _Runs:
    """Make all runs; a repetition that is disturbed is made again on all sides.

    So a ratio is always that of runs in a row.
    """
    runs = _Runs()
    finished = 0
    for number, (entry, of_entry) in enumerate(zip(entries, plans, strict=True)):
        for seed in entry.seeds:
            title = _case(entry, of_entry, seed).title
            for _ in range(repetitions):
                turn = _make_turn(root, of_entry, seed, make_run, speed, view, finished)
                for _ in range(TRIES - 1):
                    why = [*speed.changes_of_last(len(turn)), *_disturbances_of(turn)]
                    if not why:
                        break
                    runs.made_again.append(f"{title}: {'; '.join(why)}")
                    view.show(finished, [], notes=[f"made again, {runs.made_again[-1]}"])
                    turn = _make_turn(root, of_entry, seed, make_run, speed, view, finished)
                finished += len(turn)
                runs.marks += [f"{title}: {why}" for why in speed.changes_of_last(len(turn))]
                for way, one in turn.items():
                    runs.made.setdefault((number, way, seed), []).append(one)
    return runs


def _make_turn(
    root: Path,
    plans: dict[Way, Plan],
    seed: int,
    make_run: MakeRun,
    speed: _Speed,
    view: ProgressView,
    finished: int,
) -> dict[Way, Made]:
    """One repetition: the run on each side in turn, with the machine's speed beside it."""
    turn: dict[Way, Made] = {}
    for way, plan in plans.items():
        run = _run_of(plan, seed)
        with _shown(view, Store(plan.store), run, finished + len(turn)):
            one = make_run(root, plan, run, way)
        speed.look()
        slow = round(speed.of_last_run(way.engine), 4)
        turn[way] = replace(one, took=one.took.model_copy(update={"slowness": slow}))
        view.show(finished + len(turn), [])
    return turn


def _run_of(plan: Plan, seed: int) -> PlannedRun:
    (run,) = (one for one in plan.runs if one.seed == seed)
    return run


@contextlib.contextmanager
def _shown(view: ProgressView, store: Store, run: PlannedRun, finished: int) -> Iterator[None]:
    """Show how far a run is until the block ends."""
    since_s = time.time()

    def look(done: Done) -> None:
        while not done.wait(POLL_S):
            states = running_states(store, [run.run_id], since_s)
            waits = any(state.waiting for state in states)
            view.show(finished, states, holders(sorted(os.sched_getaffinity(0))) if waits else ())

    with beside(look):
        yield


def make_and_remove(root: Path, plan: Plan, run: PlannedRun, way: Way) -> Made:
    """Make a run, hash its records, and remove it. Raises UserError where it fails."""
    store = Store(plan.store)
    others_s, begun_s = _busy_s() - _kernel_threads_s(), time.monotonic()
    own_s = _run_one(root, plan, run, way.environment)
    wall_s = time.monotonic() - begun_s
    others_s = _busy_s() - _kernel_threads_s() - others_s - own_s
    others_cpus = max(0.0, others_s) / wall_s
    folder = store.run(run.run_id)
    manifest = read_manifest(store.manifest(run.run_id))
    extract(folder, folder / RECORDS)
    records = identity_hash(record_hashes(folder / RECORDS))
    shutil.rmtree(folder)
    if not (manifest.cpu_s and manifest.wall_s and manifest.peak_memory_bytes):
        raise UserError(f"the run {run.title} does not say what it took")
    return Made(
        BenchRepetition(
            cpu_s=manifest.cpu_s,
            wall_s=manifest.wall_s,
            peak_memory_bytes=manifest.peak_memory_bytes,
            others_cpus=round(others_cpus, 3),
        ),
        records,
        {name: str(value) for name, value in manifest.identity.get("engine", {}).items()},
        {name: str(value) for name, value in manifest.identity.get("programs", {}).items()},
    )


def _busy_s() -> float:
    """CPU time that anybody has had on this machine since it started."""
    times = psutil.cpu_times()
    named = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(times, name, 0.0) for name in named))


def _kernel_threads_s() -> float:
    """CPU time that the kernel's threads have had: they tend a run's memory and files."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        flags, user, system = (int(after_name[field - 3]) for field in (9, 14, 15))
        ticks += user + system if flags & PF_KTHREAD else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _run_one(root: Path, plan: Plan, run: PlannedRun, environment: Mapping[str, str]) -> float:
    """Make a run in a process of its own; returns its CPU time in seconds, with its children's.

    Interrupted, it ends the run. Raises UserError where the run fails.
    """
    command = [sys.executable, "-m", "onionlab", "run-one", "--root", str(root)]
    command += ["--plan", str(plan.file), "--run", run.run_id]
    with presence(plan.out), tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            # A terminal's Ctrl-C is for this process, which ends the run in its own order.
            start_new_session=True,
        )
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            _end(process)
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            message = said.read().strip().removeprefix("error: ")
            raise UserError(message or f"the run {run.title} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
            return


def _cases(
    entries: Sequence[BenchEntry],
    plans: Sequence[dict[Way, Plan]],
    made: dict[tuple[int, Way, int], list[Made]],
) -> tuple[BenchCase, ...]:
    return tuple(
        _case(entry, plans[number], seed).model_copy(
            update={"sides": {way.name: _side(made[number, way, seed]) for way in plans[number]}}
        )
        for number, entry in enumerate(entries)
        for seed in entry.seeds
    )


def _case(entry: BenchEntry, plans: dict[Way, Plan], seed: int) -> BenchCase:
    """What is run, before it is."""
    return BenchCase(
        experiment=entry.experiment,
        scale=entry.scale,
        level=_run_of(next(iter(plans.values())), seed).level,
        variant=entry.variant,
        seed=seed,
        sides={},
    )


def _side(made: Sequence[Made]) -> BenchSide:
    return BenchSide(
        engine=made[0].engine,
        programs=made[0].programs,
        records=" ".join(dict.fromkeys(one.records for one in made)),
        repetitions=tuple(one.took for one in made),
    )


def _measurement(
    measured_at: str,
    cases: tuple[BenchCase, ...],
    engines: Sequence[str],
    runs: _Runs,
    speed: _Speed,
) -> BenchMeasurement:
    facts = host_facts()
    before, after = speed.measured[0], speed.measured[-1]
    return BenchMeasurement(
        format=1,
        measured_at=measured_at,
        project=project_name(),
        machine={name: facts[name] for name in MACHINE_FACTS},
        host={name: value for name, value in facts.items() if name not in MACHINE_FACTS},
        before={name: getattr(before, name) for name in MEASURES},
        after={name: getattr(after, name) for name in MEASURES},
        slowness={engine: round(speed.mean(engine), 4) for engine in engines},
        marks=(*marks_of_runs(cases), *runs.marks),
        made_again=tuple(runs.made_again),
        cases=cases,
    )


def marks_of_runs(cases: Sequence[BenchCase]) -> Iterator[str]:
    """Why the runs of a measurement do not count: others were at work, or records differ."""
    for case in cases:
        by_ptrace, own = case.sides.get(PTRACE.name), case.sides.get(PTRACE.engine)
        if by_ptrace and own and by_ptrace.records != own.records:
            yield f"{case.title}: by ptrace there are other records"
        for engine, side in case.sides.items():
            if " " in side.records:
                yield f"{case.title} on {engine}: repetitions have other records"
            for number, one in enumerate(side.repetitions, start=1):
                for why in disturbances(one):
                    yield f"{case.title} on {engine}, repetition {number}: {why}"


def _disturbances_of(turn: Mapping[Way, Made]) -> Iterator[str]:
    for way, one in turn.items():
        yield from (f"{way.name}: {why}" for why in disturbances(one.took))


def disturbances(one: BenchRepetition) -> Iterator[str]:
    """Why what a run took does not count: others were at work meanwhile."""
    if one.wall_s > MOST_WALL_TO_CPU * one.cpu_s:
        yield f"{one.wall_s:.0f} s by the clock for {one.cpu_s:.0f} s of CPU time"
    elif one.others_cpus > MOST_OTHERS_CPUS:
        yield f"others kept {one.others_cpus:.1f} CPUs busy"


def _measured_machine() -> Calibration:
    """What the CPU of a run takes for the pieces of its work. Raises UserError."""
    try:
        found = [calibrate(cpus_of_runs(1)) for _ in range(PROBES)]
    except NoCalibrationError as error:
        raise UserError(f"this machine cannot be measured: {error}", "try it again") from error
    return median_of(found)


@contextlib.contextmanager
def _nothing_left(runs: Path) -> Iterator[None]:
    """Have no runs before the block and none behind it; what is left of one that failed is kept.

    Interrupted, it says what became of the measurement.
    """
    _clear(runs)
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("nothing was added to the history") from None
    finally:
        _clear(runs, but=".failed")


def _clear(runs: Path, but: str = "") -> None:
    if not runs.exists():
        return
    kill_processes_below(runs)
    for folder in runs.iterdir():
        if folder.name != but:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError("another measurement is under way", "wait for its end") from None
        yield
