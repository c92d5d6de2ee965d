"""The guest's first process: builds the network, then starts, monitors and stops the programs.

Even if the simulation fails, the process writes a result to the run directory, and ends the guest.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from onionlab.engines.uml import system
from onionlab.engines.uml.guest import file_systems, launch
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
from onionlab.engines.uml.guest.launch import RunningProgram
from onionlab.engines.uml.guest.wiring import NAMESPACES, Links, build_network
from onionlab.engines.uml.traffic.traffic_file import TrafficFile, TrafficHost

PROGRESS_INTERVAL_NS = 10**9
LOG_INTERVAL_NS = 10 * PROGRESS_INTERVAL_NS
"""The interval at which the guest reports new output of watched hosts. It is equal to the maximum
delay that an engine may have (onionlab.engines.base.WATCHED_LATE_S).
"""
READY_STEP_MS = 100
"""The first program may start at the first multiple of this time after the network is built."""
DRIVER_TIMEOUT_S = 60.0
TRAFFIC_FOLDER = "onionlab/engines/uml/traffic"
# After the first byte of a stream's payload, a socket wakes up the driver only when at least this
# number of unread bytes, or the rest of the payload, has arrived.
TRAFFIC_PIECE_BYTES = 16384

_MEMORY_SETTINGS = {
    # If memory runs out, the guest panics. By default, programs would be killed one by one.
    "vm/panic_on_oom": "1",
    "vm/overcommit_memory": "1",
    "fs/file-max": "10000000",
    "kernel/pid_max": "4194304",
}


class ProgramError(Exception):
    """A program ended prematurely, or still runs when it should have ended."""

    def __init__(self, running: RunningProgram, what: str) -> None:
        super().__init__(f"{running.program} of {running.host} {what}")
        self.last_lines = running.last_lines()


def main(boot_file: str) -> None:
    """Run the simulation, write its result, and power the guest off. Never returns."""
    try:
        result = _run(read_boot(Path(boot_file)))
    except ProgramError as error:
        at_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        result = Result(f"{error} after {at_s:.3f} s", tuple(error.last_lines))
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
        _report_end("copying logs")
        for host in description.hosts:
            file_systems.copy_out(host.name)
            _report_end("copying logs")
    return Result("")


class Simulation:
    """Runs all programs of all hosts, from the first start to the stop."""

    def __init__(
        self, boot: Boot, description: Description, links: Links, preload: Mapping[str, str]
    ) -> None:
        """Prepare the simulation. preload: environment variables to set for every program."""
        self._boot = boot
        self._preload = preload
        self._description = description
        self._links = links
        self._epoch_ns = description.epoch_unix_s * 10**9
        self._alarm = system.Alarm(signal.SIGCHLD)
        self._running: dict[int, RunningProgram] = {}
        self._may_end: set[int] = set()
        self._driver: RunningProgram | None = None
        self._reported: dict[int, int] = {}

    def run(self) -> None:
        """Start all programs at their times and stop them at the end.

        Raises ProgramError if a program ends prematurely, or still runs when it should have ended.
        """
        events: list[tuple[int, Callable[[], None]]] = []
        if 0 < self._description.bootstrap_end_ms < self._description.stop_ms:
            # The stable sort places this before programs that start at the same moment.
            events.append((self._description.bootstrap_end_ms, self._links.end_bootstrap))
        traffic = []
        for host in self._description.hosts:
            for position, program in enumerate(host.programs):
                if program.program == TRAFFIC_PROGRAM:
                    traffic.append(self._traffic_host(host, position))
                else:
                    events.append((program.start_ms, self._starter(host, position)))
        events.sort(key=lambda event: event[0])
        self._sleep_until(self._ready_ms())
        if traffic:
            self._start_driver(traffic)
        for at_ms, action in events:
            self._sleep_until(at_ms)
            action()
        self._sleep_until(self._description.stop_ms)
        self._stop()

    def _ready_ms(self) -> int:
        """Return the simulated time at which programs may start: the same time in all checkouts.

        The work of the guest's start differs between checkouts. If this work took simulated time,
        it could influence the guest's scheduler later. Because of the kernel's parameter
        onionlab.start, it takes none. Raises ValueError if a program should start earlier.
        """
        ready_ms = (self._now_ns() // (READY_STEP_MS * 10**6) + 1) * READY_STEP_MS
        for host in self._description.hosts:
            for program in host.programs:
                if program.start_ms < ready_ms:
                    raise ValueError(
                        f"{program.program} of {host.name} should start after {program.start_ms} ms"
                        f", but the network is ready after {ready_ms} ms"
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

    def _traffic_host(self, host: GuestHost, position: int) -> TrafficHost:
        program = host.programs[position]
        directory = file_systems.HOSTS / host.name
        return TrafficHost(
            name=host.name,
            graph=os.path.normpath(directory / program.arguments[0]),
            directory=str(directory),
            start_ms=program.start_ms,
            log=str(launch.log_file(host.name, TRAFFIC_PROGRAM, position)),
            netns=str(NAMESPACES / host.name),
            bind=program.environment.get(BIND_VARIABLE),
        )

    def _start_driver(self, hosts: Sequence[TrafficHost]) -> None:
        traffic_file = file_systems.SIMULATION / "traffic.json"
        TrafficFile(
            seed=self._description.seed,
            epoch_unix_s=self._description.epoch_unix_s,
            # The driver should not stop by itself, because it gets a signal at the end of the
            # simulation. Its own stop time is therefore later than the end.
            stop_ms=self._description.stop_ms + round(1000 * DRIVER_TIMEOUT_S),
            names={host.name: host.address for host in self._description.hosts},
            receive_low_water_bytes=TRAFFIC_PIECE_BYTES,
            hosts=tuple(hosts),
        ).write(traffic_file)
        driver = f"{self._boot.package_root}/{TRAFFIC_FOLDER}"
        self._driver = launch.start(
            [self._boot.python, "-I", "-S", "-B", driver, str(traffic_file)],
            host="all hosts",
            log=file_systems.SIMULATION / "traffic.0.stdout",
            directory=file_systems.SIMULATION,
            environment=self._preload,
            in_network=False,
        )
        self._running[self._driver.pid] = self._driver

    def _sleep_until(self, at_ms: int) -> None:
        """Let simulated time pass, report it on the console, and check that all programs run.

        Return exactly at `at_ms`, to the nanosecond. The duration of earlier work depends on the
        checkout (for example on whether Python finds its modules compiled), and must not affect
        later events.
        """
        until_ns = at_ms * 10**6
        while True:
            now_ns = self._now_ns()
            self._check_programs()
            if now_ns >= until_ns:
                return
            next_mark_ns = (now_ns // PROGRESS_INTERVAL_NS + 1) * PROGRESS_INTERVAL_NS
            self._alarm.set(self._epoch_ns + min(until_ns, next_mark_ns))
            signal.sigwait({signal.SIGCHLD})
            if self._now_ns() >= next_mark_ns:
                if next_mark_ns % LOG_INTERVAL_NS == 0:
                    self._report_logs()
                print(f"{TIME_MARK} {next_mark_ns // 10**9} {_free_memory_bytes()}", flush=True)

    def _report_logs(self) -> None:
        """Write new output lines of watched hosts' programs to the console.

        The engine copies the lines from the console. If the guest wrote to files of the machine
        instead, this would delay the guest's kernel and move simulated events.
        """
        for pid, running in self._running.items():
            if running.host in self._boot.watched:
                begin = self._reported.get(pid, 0)
                whole = running.read_from(begin).rpartition(b"\n")[0]
                if whole:
                    self._reported[pid] = begin + len(whole) + 1
                    mark = f"{LOG_MARK} {running.host} {running.log.name} ".encode()
                    lines = b"".join(mark + line + b"\n" for line in whole.split(b"\n"))
                    sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()

    def _now_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_REALTIME) - self._epoch_ns

    def _check_programs(self) -> None:
        for pid, status in _ended_children():
            running = self._running.pop(pid, None)
            if running is not None and not (pid in self._may_end and status == 0):
                raise ProgramError(running, launch.describe_status(status))

    def _stop(self) -> None:
        for pid in self._may_end & self._running.keys():
            raise ProgramError(self._running[pid], "should have ended but still runs")
        driver = self._driver
        if driver is not None:
            del self._running[driver.pid]
            _report_end("stopping programs")
            # Stop the programs before the driver. Their reaction to the end of the traffic is not
            # part of the simulation, and it would take minutes under load.
            for pid in self._running:
                os.kill(pid, signal.SIGSTOP)
            _report_end("waiting for the traffic's logs")
            os.kill(driver.pid, signal.SIGTERM)
            deadline_ns = self._now_ns() + round(DRIVER_TIMEOUT_S * 1e9)
            while True:
                ended = dict(_ended_children())
                if driver.pid in ended:
                    break
                if self._now_ns() > deadline_ns:
                    raise TimeoutError("the traffic driver does not stop")
                signal.sigtimedwait({signal.SIGCHLD}, DRIVER_TIMEOUT_S)
            if ended[driver.pid]:
                raise ProgramError(driver, launch.describe_status(ended[driver.pid]))
        _report_end("ending programs")
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)


def _report_end(doing: str) -> None:
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
