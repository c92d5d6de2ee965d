"""The guest's first process: makes the network, starts the programs, watches them, stops.

It ends the guest itself in every case, after it has said on the host's side how things went.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from onionlab.engines.uml.guest import file_systems, launch, system
from onionlab.engines.uml.guest.boot import (
    END_MARK,
    LOG_MARK,
    RESULT_FILE,
    TIME_MARK,
    Boot,
    Result,
    read_boot,
)
from onionlab.engines.uml.guest.description import (
    BIND_VARIABLE,
    TRAFFIC_PROGRAM,
    Description,
    GuestHost,
    read_description,
)
from onionlab.engines.uml.guest.launch import Running
from onionlab.engines.uml.guest.wiring import NAMESPACES, Links, build_network

PROGRESS_INTERVAL_NS = 10**9
REPEAT_INTERVAL_NS = 10 * PROGRESS_INTERVAL_NS
"""No longer than what the engine promises (onionlab.engines.base.WATCHED_LATE_S)."""
READY_STEP_MS = 100
"""Programs may start from the first multiple of this on, once the network is made."""
DRIVER_PATIENCE_S = 60.0
TRAFFIC_FOLDER = "onionlab/engines/uml/traffic"
# After the first byte of a stream, the driver is woken for pieces of this size.
TRAFFIC_PIECE_BYTES = 16384
TRAFFIC_FORMAT = 1

_MEMORY_SETTINGS = {
    # A guest without memory is an end in one line, not programs that vanish one by one.
    "vm/panic_on_oom": "1",
    "vm/overcommit_memory": "1",
    "fs/file-max": "10000000",
    "kernel/pid_max": "4194304",
}


class ProgramEndedError(Exception):
    """A program ended before its time."""

    def __init__(self, running: Running, status: int) -> None:
        how = launch.describe_status(status)
        super().__init__(f"{running.program} of {running.host} ended {how}")
        self.last_words = running.last_words()


class ProgramRunsError(Exception):
    """A program that was to end by itself still runs when the simulation ends."""

    def __init__(self, running: Running) -> None:
        super().__init__(f"{running.program} of {running.host} was to end by itself and still runs")
        self.last_words = running.last_words()


def main(boot_file: str) -> None:
    """Run the simulation, write its result, switch the guest off. Never returns."""
    try:
        result = _run(read_boot(Path(boot_file)))
    except (ProgramEndedError, ProgramRunsError) as error:
        at_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        result = Result(f"{error} after {at_s:.3f} s", tuple(error.last_words))
    except BaseException as error:
        lines = traceback.format_exception(error)
        print("".join(lines), flush=True)
        result = Result(f"the guest failed: {error}", tuple("".join(lines).splitlines()[-15:]))
    try:
        result.write(file_systems.OUTSIDE / RESULT_FILE)
    except OSError as error:
        print(f"the guest cannot write its result: {error}", flush=True)
    finally:
        system.power_off()


def _run(boot: Boot) -> Result:
    file_systems.mount_basics()
    file_systems.mount_outside(boot.run_directory)
    description = read_description(file_systems.OUTSIDE / "conf" / "uml.json")
    for name, value in _MEMORY_SETTINGS.items():
        Path("/proc/sys", name).write_text(value)
    resource.setrlimit(resource.RLIMIT_NOFILE, (boot.open_files, boot.open_files))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    file_systems.provide_programs(boot.programs)
    preload = file_systems.provide_calls(boot.calls)
    file_systems.write_names(description)
    file_systems.copy_in()
    for host in description.hosts:
        (file_systems.HOSTS / host.name).mkdir(mode=0o700, parents=True, exist_ok=True)
    links = build_network(description)
    simulation = Simulation(boot, description, links, preload)
    try:
        simulation.run()
    finally:
        _say_end("copying logs")
        for host in description.hosts:
            file_systems.copy_out(host.name)
            _say_end("copying logs")
    return Result("")


class Simulation:
    """All programs of all hosts, from the first start to the stop."""

    def __init__(
        self, boot: Boot, description: Description, links: Links, preload: Mapping[str, str]
    ) -> None:
        """preload: of every program's environment."""
        self._boot = boot
        self._preload = preload
        self._description = description
        self._links = links
        self._epoch_ns = description.epoch_unix_s * 10**9
        self._alarm = system.Alarm(signal.SIGCHLD)
        self._running: dict[int, Running] = {}
        self._may_end: set[int] = set()
        self._driver: Running | None = None
        self._repeated: dict[int, int] = {}

    def run(self) -> None:
        """Start everything at its time and stop at the end.

        Raises ProgramEndedError, ProgramRunsError.
        """
        events: list[tuple[int, Callable[[], None]]] = []
        if 0 < self._description.bootstrap_end_ms < self._description.stop_ms:
            # Before what starts at the same moment.
            events.append((self._description.bootstrap_end_ms, self._links.end_bootstrap))
        traffic = []
        for host in self._description.hosts:
            for position, program in enumerate(host.programs):
                if program.program == TRAFFIC_PROGRAM:
                    traffic.append(self._traffic(host, position))
                else:
                    events.append((program.start_ms, self._starter(host, position)))
        events.sort(key=lambda event: event[0])
        self._sleep_until(self._ready_ms())
        if traffic:
            self._start_driver(traffic)
        for at_ms, happen in events:
            self._sleep_until(at_ms)
            happen()
        self._sleep_until(self._description.stop_ms)
        self._stop()

    def _ready_ms(self) -> int:
        """When all that is started may start: the same moment in every checkout.

        Until then the kernel charges for nothing (its parameter onionlab.start): what a start has
        to do differs from one checkout to the next, and the scheduler would remember.
        """
        ready_ms = (self._now_ns() // (READY_STEP_MS * 10**6) + 1) * READY_STEP_MS
        for host in self._description.hosts:
            for program in host.programs:
                if program.start_ms < ready_ms:
                    raise ValueError(
                        f"{program.program} of {host.name} is to start after {program.start_ms} ms"
                        f", and the network is there after {ready_ms} ms"
                    )
        return ready_ms

    def _starter(self, host: GuestHost, position: int) -> Callable[[], None]:
        program = host.programs[position]

        def start() -> None:
            running = launch.start(
                [str(file_systems.PROGRAMS / program.program), *program.arguments],
                host=host.name,
                log=launch.log_file(host.name, program.program, position),
                environment={**self._preload, **program.environment},
                directory=file_systems.HOSTS / host.name,
            )
            self._running[running.pid] = running
            if not program.runs_to_end:
                self._may_end.add(running.pid)

        return start

    def _traffic(self, host: GuestHost, position: int) -> dict[str, str | int]:
        program = host.programs[position]
        graph = os.path.normpath(file_systems.HOSTS / host.name / program.arguments[0])
        return {
            "name": host.name,
            "graph": graph,
            "directory": str(file_systems.HOSTS / host.name),
            "start_ms": program.start_ms,
            "log": str(launch.log_file(host.name, TRAFFIC_PROGRAM, position)),
            "netns": str(NAMESPACES / host.name),
            "address": host.address,
            **({"bind": bind} if (bind := program.environment.get(BIND_VARIABLE)) else {}),
        }

    def _start_driver(self, traffic: list[dict[str, str | int]]) -> None:
        traffic_file = file_systems.SIMULATION / "traffic.json"
        traffic_file.write_text(
            json.dumps(
                {
                    "format": TRAFFIC_FORMAT,
                    "seed": self._description.seed,
                    "epoch_unix_s": self._description.epoch_unix_s,
                    # It is told to stop, like all others, and does not do so by itself.
                    "stop_ms": self._description.stop_ms + round(1000 * DRIVER_PATIENCE_S),
                    "names": {host.name: host.address for host in self._description.hosts},
                    "receive_low_water_bytes": TRAFFIC_PIECE_BYTES,
                    "hosts": traffic,
                }
            )
        )
        self._driver = launch.start(
            # As a folder: the packages above it would be imported for nothing.
            [
                self._boot.python,
                "-I",
                "-S",
                "-B",
                f"{self._boot.package_root}/{TRAFFIC_FOLDER}",
                str(traffic_file),
            ],
            host="all hosts",
            log=file_systems.SIMULATION / "traffic.0.stdout",
            directory=file_systems.SIMULATION,
            environment=self._preload,
            in_network=False,
        )
        self._running[self._driver.pid] = self._driver

    def _sleep_until(self, at_ms: int) -> None:
        """Let simulated time pass, tell the host how much, and see whether all programs run.

        Returns at that nanosecond. How long it took to get here depends on the checkout (on whether
        Python finds its modules compiled, for one); what is to come must not.
        """
        until_ns = at_ms * 10**6
        while True:
            now_ns = self._now_ns()
            self._look_after_programs()
            if now_ns >= until_ns:
                return
            next_mark_ns = (now_ns // PROGRESS_INTERVAL_NS + 1) * PROGRESS_INTERVAL_NS
            self._alarm.set(self._epoch_ns + min(until_ns, next_mark_ns))
            signal.sigwait({signal.SIGCHLD})
            if self._now_ns() >= next_mark_ns:
                if next_mark_ns % REPEAT_INTERVAL_NS == 0:
                    self._repeat_logs()
                print(f"{TIME_MARK} {next_mark_ns // 10**9} {_free_memory_bytes()}", flush=True)

    def _repeat_logs(self) -> None:
        """Tell the host which lines watched hosts' programs have printed since the last time.

        On the console, where the time goes too: writing files of the host would let the guest's
        kernel do something later, and move what others do.
        """
        for pid, running in self._running.items():
            if running.host in self._boot.watched:
                begin = self._repeated.get(pid, 0)
                whole = running.read_from(begin).rpartition(b"\n")[0]
                if whole:
                    self._repeated[pid] = begin + len(whole) + 1
                    mark = f"{LOG_MARK} {running.host} {running.log.name} ".encode()
                    lines = b"".join(mark + line + b"\n" for line in whole.split(b"\n"))
                    sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()

    def _now_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_REALTIME) - self._epoch_ns

    def _look_after_programs(self) -> None:
        for pid, status in _ended_children():
            running = self._running.pop(pid, None)
            if running is not None and not (pid in self._may_end and status == 0):
                raise ProgramEndedError(running, status)

    def _stop(self) -> None:
        for pid in self._may_end & self._running.keys():
            raise ProgramRunsError(self._running[pid])
        driver = self._driver
        if driver is not None:
            del self._running[driver.pid]
            _say_end("stopping programs")
            # For them it is over: what they would make of the traffic's end is of no run's logs,
            # and under load it would take minutes.
            for pid in self._running:
                os.kill(pid, signal.SIGSTOP)
            _say_end("waiting for the traffic's logs")
            os.kill(driver.pid, signal.SIGTERM)
            deadline_ns = self._now_ns() + round(DRIVER_PATIENCE_S * 1e9)
            while True:
                ended = dict(_ended_children())
                if driver.pid in ended:
                    break
                if self._now_ns() > deadline_ns:
                    raise TimeoutError("the traffic driver does not stop")
                signal.sigtimedwait({signal.SIGCHLD}, DRIVER_PATIENCE_S)
            if ended[driver.pid]:
                raise ProgramEndedError(driver, ended[driver.pid])
        _say_end("ending programs")
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)


def _say_end(doing: str) -> None:
    print(f"{END_MARK} {doing}", flush=True)


def _ended_children() -> list[tuple[int, int]]:
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def _free_memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main(sys.argv[1])
