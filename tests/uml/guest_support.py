"""Run guests with a few hosts that run guest_probe.py, and read their output."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onionlab.engines.base import Engine, Process, Progress, Simulation, Usage
from onionlab.engines.uml.engine import UmlEngine
from onionlab.network.layout import Host, Link, Network, Place

PROBE = Path(__file__).with_name("guest_probe.py")
MBIT = 1_000_000
MEMORY_FILE_NAMES = ("vm_file", "uml", "onionlab")
OTHER_FOLDERS = tuple(f"onionlab-{name}-" for name in ("attempts", "test-cpus", "boot", "build"))
"""Prefixes of folders of cluster jobs, tests and builds, which other processes may create."""


@dataclass
class Net:
    """Builds a simulation.

    Unless a test says otherwise, each host has its own place in the network.
    """

    packet_loss: float = 0.0
    seed: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    hosts: list[Host] = field(default_factory=list)
    latency_us: dict[frozenset[str], int] = field(default_factory=dict)
    processes: dict[str, list[Process]] = field(default_factory=dict)
    default_latency_us: int = 10_000
    watched: tuple[str, ...] = ()
    path_loss: dict[frozenset[str], float] = field(default_factory=dict)
    bootstrap_end_ms: int = 0

    def host(
        self,
        name: str,
        *,
        up: int = 100 * MBIT,
        down: int = 100 * MBIT,
        place: str | None = None,
        address: str | None = None,
        link: Link | None = None,
    ) -> None:
        where = place or f"place-{name}"
        self.places.setdefault(where, Place(where, "region", up, down))
        own = address or f"100.10.0.{len(self.hosts) + 1}"
        self.hosts.append(Host(name, "server", None, where, own, link=link))
        self.processes[name] = []

    def latency(self, one: str, other: str, us: int) -> None:
        self.latency_us[frozenset((f"place-{one}", f"place-{other}"))] = us

    def run(self, name: str, *arguments: str, at_ms: int = 1000, runs_to_end: bool = True) -> None:
        """Let a host run a command of guest_probe.py."""
        command = ("-S", "-B", str(PROBE), *arguments)
        self.processes[name].append(Process("python", command, at_ms, runs_to_end=runs_to_end))

    def simulation(self, stop_ms: int) -> Simulation:
        places = tuple(self.places.values())
        pairs = [(a.name, b.name) for i, a in enumerate(places) for b in places[i:]]
        return Simulation(
            network=Network(
                hosts=tuple(self.hosts),
                places=places,
                latency_us={
                    pair: self.latency_us.get(frozenset(pair), self.default_latency_us)
                    for pair in pairs
                },
                packet_loss=self.packet_loss,
                path_loss={
                    pair: self.path_loss[frozenset(pair)]
                    for pair in pairs
                    if frozenset(pair) in self.path_loss
                },
            ),
            processes={name: tuple(each) for name, each in self.processes.items()},
            seed=self.seed,
            stop_ms=stop_ms,
            options=self.options,
            watched=self.watched,
            bootstrap_end_ms=self.bootstrap_end_ms,
        )


def run_guest(
    directory: Path,
    engine: Engine,
    net: Net,
    *,
    stop_s: float,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    programs: Mapping[str, Path] | None = None,
) -> Usage:
    """Run a simulation in a directory, which is created if it is missing."""
    simulation = net.simulation(round(stop_s * 1000))
    for relative, content in engine.configuration(simulation).items():
        (directory / relative).parent.mkdir(parents=True, exist_ok=True)
        (directory / relative).write_bytes(content)
    (directory / "shadow.data.template").mkdir()
    return engine.run(
        directory,
        simulation=simulation,
        programs=programs or {"python": Path(sys.executable)},
        on_progress=on_progress,
    )


def read_output(directory: Path, host: str, position: int = 0) -> list[dict[str, Any]]:
    """Return the lines of JSON that a program printed.

    position: index of the program among the programs of its host.
    """
    folder = directory / "shadow.data" / "hosts" / host
    lines = (folder / f"python.{1000 + position}.stdout").read_text().splitlines()
    return [json.loads(line) for line in lines]


def run_endless_guest(directory: Path, engine: UmlEngine) -> None:
    """Run a guest that is busy for a long time: its hosts send to each other."""
    net = Net(options={"stall_timeout_s": 15.0})
    for name in ("a", "b", "c"):
        net.host(name)
        net.run(name, "serve")
    for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
        net.run(one, "send", other, "100000", "4", at_ms=2000)
    run_guest(directory, engine, net, stop_s=100_000)


def processes_in(directory: Path) -> list[int]:
    """Return the IDs of processes whose working directory is ``directory``."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").readlink() == directory:
                found.append(int(entry.name))
    return found


def traces() -> set[str]:
    """Return the mounts and memory files on this machine that a guest could leave behind.

    Named network namespaces are mounts, too, but the engine does not create any. They are left out.
    """
    mounts = {
        line.split(" ", 5)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()
    }
    memory = {
        str(path)
        for folder in ("/dev/shm", "/tmp")
        for path in Path(folder).iterdir()
        if path.name.startswith(MEMORY_FILE_NAMES) and not path.name.startswith(OTHER_FOLDERS)
    }
    return {mount for mount in mounts if not mount.startswith("/run/netns")} | memory
