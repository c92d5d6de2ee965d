"""Run simulations with Shadow, which executes each simulated process as a real process.

Format of the configuration: https://shadow.github.io/docs/guide/shadow_config_spec.html
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from analysis.formats.files import LOGS, TEMPLATE
from onionlab.engines.base import EngineFailureError, Process, Progress, Simulation, Usage
from onionlab.engines.following import Command, follow
from onionlab.network.layout import Host, Network
from onionlab.programs.building import file_sha256
from onionlab.programs.installed import SHADOW, TGEN, find_tool

CONFIGURATION = "shadow.config.yaml"
LOG = "shadow.log"
GRAPH = "conf/network.gml"
LOG_TAIL_LINES = 25
LOG_TAIL_BYTES = 200_000

# These defaults result from the measurements in docs/explanation/performance.md. The section
# `engine: shadow:` of an experiment overrides them.
DEFAULT_OPTIONS: dict[str, Any] = {
    "general": {"parallelism": 1, "heartbeat_interval": "5 sec", "log_level": "info"},
    "experimental": {},
    "host_option_defaults": {},
}

_REPORT = " System memory usage in bytes at simtime "
_HEARTBEAT = re.compile(rb"resource usage at simtime (\d+) ")

# The environment of simulated programs. Without these variables, the programs would use the
# machine's time zone and OpenSSL configuration.
FIXED_ENVIRONMENT = {"TZ": "UTC0", "OPENSSL_CONF": "/dev/null"}


class ShadowEngine:
    """The engine that runs simulations with the Shadow that the user has installed."""

    name = "shadow"

    def __init__(self, *, shadow: str | None = None, tgen: str | None = None) -> None:
        """Find Shadow and TGen at the given paths, or else where `find_tool` looks for them.

        Raises UserError if one of the programs is missing, is too old, or does not start.
        """
        self._shadow = find_tool(SHADOW, shadow)
        self._tgen = find_tool(TGEN, tgen)

    @functools.cached_property
    def identity(self) -> dict[str, str]:
        """Versions and hashes of Shadow, of the libraries that it preloads, and of TGen.

        Results may differ between any two versions of Shadow (see its semver.md), and between any
        two builds of one version.
        """
        # The executable's RUNPATH is $ORIGIN/../lib, so it loads its libraries from this folder.
        libraries = self._shadow.path.resolve().parent.parent.glob("lib/libshadow_*.so")
        return {
            "name": self.name,
            "version": self._shadow.version,
            "commit": self._shadow.commit or "",
            "sha256": self._shadow.sha256,
            "tgen": self._tgen.version,
            "tgen_sha256": self._tgen.sha256,
            **{path.name: file_sha256(path) for path in sorted(libraries)},
        }

    @property
    def programs(self) -> dict[str, Path]:
        """The executable of TGen, which the user installs together with Shadow."""
        return {"tgen": self._tgen.path}

    def configuration(self, simulation: Simulation) -> dict[str, bytes]:
        """Return Shadow's YAML and the network graph that it refers to."""
        return {
            CONFIGURATION: _dump_yaml(_configuration(simulation)),
            GRAPH: network_graph(simulation.network),
        }

    def check_files(self, simulation: Simulation, files: Mapping[str, bytes]) -> None:
        """Accept all files: Shadow runs the real programs, such as TGen, which check them."""

    def run(
        self,
        directory: Path,
        *,
        simulation: Simulation,
        programs: Mapping[str, Path],
        on_progress: Callable[[Progress], None],
    ) -> Usage:
        """Run Shadow in `directory`.

        Shadow's log goes to shadow.log, and samples of the machine's memory go to free.log.
        """
        shutil.rmtree(directory / LOGS, ignore_errors=True)
        folders = [str(path.parent) for path in programs.values()]
        search_path = os.pathsep.join([*dict.fromkeys(folders), os.environ.get("PATH", "")])
        simulated = _simulated_seconds(directory / LOG)
        ended = follow(
            Command(
                argv=[str(self._shadow.path), CONFIGURATION],
                directory=directory,
                log=directory / LOG,
                environment={**os.environ, "PATH": search_path},
                shared_bytes=managed_shared_bytes,
            ),
            simulated_s=lambda: next(simulated),
            stop_s=simulation.stop_ms / 1000,
            on_progress=on_progress,
        )
        if ended.status != 0:
            raise EngineFailureError(f"Shadow {ended}", _log_tail(directory / LOG))
        return ended.usage


def managed_shared_bytes(pid: int) -> int:
    """Return the shared memory of Shadow's managed processes. pid: the id of Shadow's own process.

    With `use_memory_manager`, Shadow places the heap of each managed process in a file that both
    Shadow and the managed process map. Shadow's own shared memory is not counted, because otherwise
    each heap would be counted twice.
    """
    total_kib = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                found = re.search(r"^RssShmem:\s+(\d+) kB$", status, re.MULTILINE)
                total_kib += int(found[1]) if found else 0
    return total_kib * 1024


def network_graph(network: Network) -> bytes:
    """Return the network as a complete undirected graph in GML, with one node per place.

    A place is a point of the network to which hosts with the same bandwidth attach. Shadow's
    parser requires each node and edge attribute on its own line.
    """
    number = {place.name: i for i, place in enumerate(network.places)}
    lines = ["graph [", "  directed 0"]
    for place in network.places:
        lines += [
            "  node [",
            f"    id {number[place.name]}",
            f'    label "{place.name}"',
            f'    host_bandwidth_up "{place.up_bit_per_s} bit"',
            f'    host_bandwidth_down "{place.down_bit_per_s} bit"',
            "  ]",
        ]
    for pair, latency_us in network.latency_us.items():
        source, target = pair
        lines += [
            "  edge [",
            f"    source {number[source]}",
            f"    target {number[target]}",
            f'    latency "{latency_us} us"',
            f"    packet_loss {network.loss_of(pair)!r}",
            "  ]",
        ]
    return ("\n".join([*lines, "]"]) + "\n").encode()


def _configuration(simulation: Simulation) -> dict[str, Any]:
    options = _merge_options(simulation.shadow_options, simulation.options)
    number = {place.name: i for i, place in enumerate(simulation.network.places)}
    end_ms = simulation.bootstrap_end_ms
    return {
        "general": {
            "seed": simulation.seed,
            "stop_time": f"{simulation.stop_ms} ms",
            **({"bootstrap_end_time": f"{end_ms} ms"} if end_ms else {}),
            "template_directory": TEMPLATE,
            **options["general"],
        },
        "network": {"use_shortest_path": False, "graph": {"type": "gml", "file": {"path": GRAPH}}},
        "experimental": options["experimental"],
        "host_option_defaults": options["host_option_defaults"],
        "hosts": {
            host.name: {
                "network_node_id": number[host.place],
                "ip_addr": host.address,
                **_own_link(host),
                "processes": [_process(one) for one in simulation.processes[host.name]],
            }
            for host in simulation.network.hosts
        },
    }


def _own_link(host: Host) -> dict[str, str]:
    """Return the bandwidths of a host's own link, or {} if it uses the bandwidths of its node."""
    if host.link is None:
        return {}
    return {
        "bandwidth_up": f"{host.link.up_bit_per_s} bit",
        "bandwidth_down": f"{host.link.down_bit_per_s} bit",
    }


def _process(process: Process) -> dict[str, Any]:
    return {
        "path": process.program,
        "args": list(process.arguments),
        "start_time": f"{process.start_ms} ms",
        "expected_final_state": "running" if process.runs_to_end else {"exited": 0},
        "environment": {**FIXED_ENVIRONMENT, **process.environment},
    }


def cpus_per_run(options: Mapping[str, Any]) -> int:
    """Return the number of Shadow's worker threads, each of which needs a CPU."""
    return int(_merge_options({}, options)["general"]["parallelism"])


def _merge_options(
    network_options: Mapping[str, Any], experiment_options: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge defaults, a network's options and an experiment's options, in ascending precedence."""
    return {
        section: defaults | network_options.get(section, {}) | experiment_options.get(section, {})
        for section, defaults in DEFAULT_OPTIONS.items()
    }


def _dump_yaml(data: Any) -> bytes:
    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, _data: Any) -> bool:
            return True

    return yaml.dump(data, Dumper=Dumper, sort_keys=False, width=100).encode()


def _simulated_seconds(log: Path) -> Iterator[float]:
    """Yield the newest simulated time in Shadow's log, in s. Read each byte of the log once."""
    latest_s = 0.0
    with log.open("rb") as lines:
        while True:
            for found in _HEARTBEAT.finditer(lines.read()):
                latest_s = int(found[1]) / 1e9
            yield latest_s


def _log_tail(log: Path) -> list[str]:
    """Return the lines of Shadow's log that may explain a failure, at most LOG_TAIL_LINES.

    Return the errors. If there are none, return the warnings (without repetitions), the output of
    programs, and the last report on memory. If there is no such line, return the log's last lines,
    which report on resources every few simulated seconds or describe the start.
    """
    with log.open("rb") as lines:
        lines.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        text = lines.read().decode(errors="replace").splitlines()
    errors = [line for line in text if "ERROR" in line or "panicked" in line]
    if errors:
        return errors[-LOG_TAIL_LINES:]
    usual = ("[INFO]", "[DEBUG]", "[TRACE]")
    unusual = {
        line.rpartition("] ")[2]: at
        for at, line in enumerate(text)
        if not any(level in line for level in usual)
    }
    report = [at for at, line in enumerate(text) if _REPORT in line][-1:]
    shown = [text[at] for at in sorted([*unusual.values(), *report])]
    return (shown or text)[-LOG_TAIL_LINES:]
