"""The engine `uml`: User-Mode Linux in time-travel mode, an ordinary process without privileges.

This module starts the kernel, monitors its simulated time, and ends it in every case. The code in
guest/ runs the simulation.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import posixpath
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Protocol, TypeVar

from analysis.formats.files import HOST_TEMPLATES, HOSTS, LOGS
from onionlab.engines.base import (
    EPOCH_UNIX_S,
    EngineFailureError,
    Process,
    Progress,
    Simulation,
    Usage,
)
from onionlab.engines.following import Command, ExitInfo, follow
from onionlab.engines.processes import end_processes_below
from onionlab.engines.uml import memory
from onionlab.engines.uml.bootcheck import IN_PROCESSES, quote_argument
from onionlab.engines.uml.guest import description
from onionlab.engines.uml.guest.boot import (
    BOOT_FILE,
    END_MARK,
    LOG_MARK,
    LOGS_FOLDER,
    MARKS,
    RESULT_FILE,
    TIME_MARK,
    Boot,
    Result,
    read_result,
)
from onionlab.engines.uml.huge_pages import command as huge_pages_command
from onionlab.engines.uml.traffic.action_graph import load_graph
from onionlab.errors import UserError
from onionlab.paths import code_root

CONFIGURATION = "conf/uml.json"
LOG = "uml.log"
STATE_FOLDER = "uml.state"
LOG_TAIL_LINES = 25
OPEN_FILES = 65_536
START_ENDS_NS = 50 * 10**6
MAX_POLL_GAP_S = 10.0
"""The maximum time between two polls of a guest that is counted. A longer gap means that this
process was stopped.
"""
MAX_LOW_MEMORY = 0.05
"""The share of free memory below which the guest may spend all its time on reclaiming memory."""

_MORE_MEMORY = "Give it more: `engine: {uml: {memory: ...}}` in the experiment"

DEFAULT_OPTIONS: dict[str, Any] = {
    "memory_bytes": None,
    "stall_timeout_s": 120.0,
    "congestion_control": "cubic",
}

_Value = TypeVar("_Value", int, float)

# Environment variables of TGen that the traffic driver does not support.
_UNSUPPORTED_VARIABLES = {"TGENHOSTNAME", "TGENSOCKS"}

_WRAPPERS = (
    # The amount of memory that the guest finds depends on its kernel's addresses in the host's
    # memory.
    *("setarch", "--addr-no-randomize"),
    # A guest's panic ends in abort(3), and a core dump of its memory would be useless.
    *("prlimit", "--core=0"),
)

_HUGE_PAGES_MARGIN_BYTES = 64 * 2**20
"""The size of the tmpfs with huge pages beyond the guest's memory, for other files in it."""

_END = re.compile(rb"^" + END_MARK.encode() + rb" ([^\r\n]*)\r?\n", re.MULTILINE)
_TIME = re.compile(rb"^" + TIME_MARK.encode() + rb" (\d+) (\d+)\r?\n", re.MULTILINE)
_LINE = re.compile(
    rb"^" + LOG_MARK.encode() + rb" ([\w-]+) ([\w.+-]+) ([^\r\n]*)\r?\n", re.MULTILINE
)
_PANIC = re.compile(r"Kernel panic - not syncing: (.*)")
# Messages of a kernel that ran out of memory.
_OUT_OF_MEMORY = ("panic_on_oom", "Out of memory")


class Kernel(Protocol):
    """The properties of a kernel that the engine needs (see kernel.py)."""

    @property
    def path(self) -> Path:
        """The path of the executable."""

    @property
    def version(self) -> str:
        """The release of the kernel."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the executable."""

    @property
    def ptrace_because(self) -> str:
        """The reason why it cannot run inside its processes; empty if it can."""

    @property
    def calls(self) -> Path | None:
        """The library by which programs call the kernel; None without one."""

    @property
    def calls_sha256(self) -> str:
        """The SHA-256 of this library; empty without one."""


class UmlEngine:
    """The embedded engine: all hosts of a simulation run inside one Linux kernel."""

    name = "uml"

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    @property
    def identity(self) -> dict[str, str]:
        """The kernel, the interpreter and the engine's own code, which may all change results."""
        return {
            "name": self.name,
            "version": self._kernel.version,
            "kernel_sha256": self._kernel.sha256,
            "calls_sha256": self._kernel.calls_sha256,
            "python": ".".join(map(str, sys.version_info[:3])),
            "engine_sha256": _own_sha256(),
        }

    @property
    def programs(self) -> dict[str, Path]:
        """No programs: the traffic driver, a part of the engine, replaces `tgen`."""
        return {}

    def configuration(self, simulation: Simulation) -> dict[str, bytes]:
        """Return the simulation in the format that the guest reads."""
        return {CONFIGURATION: _describe(simulation)}

    def check_files(self, simulation: Simulation, files: Mapping[str, bytes]) -> None:
        """Raise UserError for graphs of TGen that the traffic driver does not support."""

        def read(path: Path) -> bytes:
            content = files.get(posixpath.normpath(path))
            if content is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return content

        for host, processes in simulation.processes.items():
            for process in processes:
                if process.program != description.TRAFFIC_PROGRAM:
                    continue
                folder = Path(HOST_TEMPLATES) / host
                graph = Path(posixpath.normpath(folder / process.arguments[0]))
                try:
                    load_graph(graph, folder, read)
                except UserError as error:
                    raise UserError(
                        f"host {host}: the embedded engine does not support its graph of TGen: "
                        f"{error.message}",
                        "run it on Shadow: ENGINE=shadow",
                    ) from error

    def cpus_per_run(self, options: Mapping[str, Any]) -> int:
        """Return one: the guest has a single processor, which its processes share."""
        return 1

    def run(
        self,
        directory: Path,
        *,
        simulation: Simulation,
        programs: Mapping[str, Path],
        on_progress: Callable[[Progress], None],
    ) -> Usage:
        """Boot the guest in `directory`. Its console goes to uml.log."""
        directory = directory.resolve()
        options = {**DEFAULT_OPTIONS, **simulation.options}
        shutil.rmtree(directory / LOGS, ignore_errors=True)
        shutil.rmtree(directory / LOGS_FOLDER, ignore_errors=True)
        (directory / RESULT_FILE).unlink(missing_ok=True)
        state = directory / STATE_FOLDER
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        memory_bytes = memory.guest_bytes(simulation, options["memory_bytes"])
        memory_folder = memory.memory_folder(simulation, memory_bytes)
        Boot(
            run_directory=str(directory),
            package_root=str(code_root()),
            python=str(Path(sys.executable).resolve()),
            programs={name: str(path.resolve()) for name, path in programs.items()},
            calls=str(self._kernel.calls.resolve()) if self._kernel.calls else "",
            open_files=OPEN_FILES,
            watched=simulation.watched,
        ).write(directory / BOOT_FILE)
        watch = _Watch(
            directory / LOG, directory / HOSTS, float(options["stall_timeout_s"]), memory_bytes
        )
        try:
            ended = follow(
                Command(
                    argv=[
                        *huge_pages_command(memory_bytes + _HUGE_PAGES_MARGIN_BYTES),
                        *_WRAPPERS,
                        *self._command(simulation, memory_bytes, directory),
                    ],
                    directory=directory,
                    log=directory / LOG,
                    environment={
                        "PATH": "/usr/bin:/bin",
                        "HOME": "/nonexistent",
                        "TMPDIR": str(memory_folder),
                    },
                    # Ctrl-C is meant for the command that runs this, which then ends the guest.
                    own_session=True,
                    shared_bytes=memory.unlinked_files_bytes,
                ),
                simulated_s=watch.poll,
                stop_s=simulation.stop_ms / 1000,
                on_progress=on_progress,
            )
        finally:
            # The guest's processes end with its kernel, but not immediately.
            end_processes_below(directory)
            shutil.rmtree(state, ignore_errors=True)
        _move_logs(directory)
        (directory / BOOT_FILE).unlink()
        _check(read_result(directory / RESULT_FILE), directory / LOG, ended)
        return ended.usage

    def _command(self, simulation: Simulation, memory_bytes: int, directory: Path) -> list[str]:
        guest = Path(__file__).parent / "guest" / "__main__.py"
        return [
            str(self._kernel.path),
            f"mem={memory_bytes // 2**20}M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "time-travel=inf-cpu",
            f"time-travel-start={EPOCH_UNIX_S * 10**9}",
            "con=null",
            "con0=fd:0,fd:1",
            "quiet",
            "norandmaps",
            f"uml_dir={STATE_FOLDER}",
            f"onionlab.seed={_guest_seed(simulation.seed)}",
            # This does not affect the environment of programs.
            *([] if self._kernel.ptrace_because else [IN_PROCESSES]),
            # The guest's own start takes no simulated time, because its work depends on the
            # checkout. This phase ends before any program starts (guest/init.py).
            f"onionlab.start={START_ENDS_NS}",
            f"init={quote_argument(Path(sys.executable).resolve())}",
            "--",
            "-I",
            "-S",
            "-B",
            quote_argument(guest),
            quote_argument(directory / BOOT_FILE),
        ]


@dataclass
class _Watch:
    """Follows a guest's simulated time and detects that it does not advance.

    Time in which this process was stopped does not count, because the guest was stopped as well.

    hosts: the folder with the growing logs of watched hosts (see _move_logs). memory_bytes: the
    guest's memory.
    """

    log: Path
    hosts: Path
    timeout_s: float
    memory_bytes: int
    simulated_s: float = 0.0
    _free_bytes: int | None = None
    _doing: str = ""
    _offset: int = 0

    def __post_init__(self) -> None:
        self._polled_wall_s = time.monotonic()
        self._still_s = 0.0

    def poll(self) -> float:
        """Return the simulated time. Raises EngineFailureError if it no longer advances."""
        now_wall_s = time.monotonic()
        self._still_s += min(now_wall_s - self._polled_wall_s, MAX_POLL_GAP_S)
        self._polled_wall_s = now_wall_s
        with self.log.open("rb") as lines:
            lines.seek(self._offset)
            new = lines.read()
        end = new.rfind(b"\n") + 1
        self._offset += end
        self._add_lines(new[:end])
        for found in _TIME.finditer(new[:end]):
            self.simulated_s = float(found[1])
            self._free_bytes = int(found[2])
            self._still_s = 0.0
        for found in _END.finditer(new[:end]):
            self._doing = found[1].decode(errors="replace")
            self._still_s = 0.0
        still_s = self._still_s
        if still_s > self.timeout_s and self._offset == 0 and not new:
            raise EngineFailureError(
                f"the guest has printed nothing for {still_s:.0f} s: it does not start"
            )
        if still_s > self.timeout_s and self._doing:
            raise EngineFailureError(
                f"the simulated time is over, but the guest does not end: {self._doing} has taken "
                f"{still_s:.0f} s",
                _log_tail(self.log),
            )
        if still_s > self.timeout_s:
            raise EngineFailureError(
                f"simulated time does not advance: after {self.simulated_s:.0f} s, the next "
                f"second has not ended for {still_s:.0f} s. {self._likely_cause()}",
                _log_tail(self.log),
            )
        return self.simulated_s

    def _likely_cause(self) -> str:
        if self._free_bytes is None or self._free_bytes > MAX_LOW_MEMORY * self.memory_bytes:
            return "A program that never sleeps causes this"
        return (
            f"The guest is short of memory: {self._free_bytes // 2**20} of "
            f"{self.memory_bytes // 2**20} MiB were free. {_MORE_MEMORY}"
        )

    def _add_lines(self, said: bytes) -> None:
        """Append the guest's copies of log lines to the logs; ignore a full disk."""
        for host, name, line in _LINE.findall(said):
            with contextlib.suppress(OSError):
                folder = self.hosts / host.decode()
                folder.mkdir(parents=True, exist_ok=True)
                with (folder / name.decode()).open("ab") as log:
                    log.write(line + b"\n")


def _move_logs(directory: Path) -> None:
    """Replace the log lines that were copied during the simulation by the guest's complete logs.

    This happens after the guest has ended, when no more lines are added. A guest that ended
    prematurely leaves no complete logs.
    """
    if (directory / LOGS_FOLDER).is_dir():
        shutil.rmtree(directory / HOSTS, ignore_errors=True)
        (directory / LOGS).mkdir(exist_ok=True)
        (directory / LOGS_FOLDER).rename(directory / HOSTS)


def _describe(simulation: Simulation) -> bytes:
    for host, processes in simulation.processes.items():
        for process in processes:
            if process.program == description.TRAFFIC_PROGRAM:
                _check_traffic(host, process)
    network = simulation.network
    number = {place.name: i for i, place in enumerate(network.places)}
    options = {**DEFAULT_OPTIONS, **simulation.options}
    data = {
        "format": description.FORMAT,
        "seed": simulation.seed,
        "epoch_unix_s": EPOCH_UNIX_S,
        "stop_ms": simulation.stop_ms,
        "memory_bytes": memory.guest_bytes(simulation, options["memory_bytes"]),
        "packet_loss": network.packet_loss,
        "congestion_control": options["congestion_control"],
        "latency_us": _matrix(number, network.latency_us),
        "hosts": [
            {
                "name": host.name,
                "address": host.address,
                "place": number[host.place],
                "up_bit_per_s": network.link_of(host).up_bit_per_s,
                "down_bit_per_s": network.link_of(host).down_bit_per_s,
                "programs": [
                    {
                        "program": process.program,
                        "arguments": list(process.arguments),
                        "environment": dict(process.environment),
                        "start_ms": process.start_ms,
                        **({} if process.runs_to_end else {"runs_to_end": False}),
                    }
                    for process in simulation.processes[host.name]
                ],
            }
            for host in network.hosts
        ],
    }
    # Optional properties are omitted, so that the files of most simulations do not change.
    if any(loss != network.packet_loss for loss in network.path_loss.values()):
        data["path_loss"] = _matrix(number, {p: network.loss_of(p) for p in network.latency_us})
    if simulation.bootstrap_end_ms:
        data["bootstrap_end_ms"] = simulation.bootstrap_end_ms
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def _matrix(
    number: Mapping[str, int], values: Mapping[tuple[str, str], _Value]
) -> list[list[_Value | int]]:
    """Return the values of pairs of places as a matrix, indexed by the places' numbers."""
    rows: list[list[_Value | int]] = [[0] * len(number) for _ in number]
    for (one, other), value in values.items():
        rows[number[one]][number[other]] = value
        rows[number[other]][number[one]] = value
    return rows


def _check_traffic(host: str, process: Process) -> None:
    """Raise UserError for arguments or variables that the traffic driver does not support."""
    wrong = ""
    if len(process.arguments) != 1:
        wrong = f"needs one argument, a graph, not {' '.join(process.arguments)!r}"
    elif refused := sorted(_UNSUPPORTED_VARIABLES & process.environment.keys()):
        wrong = f"does not support {refused[0]}, which its environment sets"
    elif not process.runs_to_end:
        wrong = "cannot end before the simulation as this one should"
    elif (address := process.environment.get(description.BIND_VARIABLE)) is not None:
        try:
            IPv4Address(address)
        except ValueError:
            wrong = f"needs an IPv4 address in {description.BIND_VARIABLE}, not {address!r}"
    if wrong:
        raise UserError(
            f"host {host}: tgen on the embedded engine {wrong}", "run it on Shadow: ENGINE=shadow"
        )


def _guest_seed(seed: int) -> str:
    return hashlib.sha256(f"onionlab guest {seed}".encode()).hexdigest()


def _own_sha256() -> str:
    """Return a hash of this module and of all code that runs in the guest."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(
        [Path(__file__), *folder.glob("guest/*.py"), *folder.glob("traffic/**/*.py")]
    ):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _check(result: Result | None, log: Path, ended: ExitInfo) -> None:
    if result is None:
        tail = _log_tail(log)
        panic = next((found[1] for line in tail if (found := _PANIC.search(line))), None)
        if panic is None:
            message = f"the guest ended prematurely: its kernel {ended}"
        elif any(sign in line for sign in _OUT_OF_MEMORY for line in tail):
            message = f"the guest ran out of memory. {_MORE_MEMORY}"
        else:
            message = f"the guest's kernel panicked: {panic}"
        raise EngineFailureError(message, tail)
    if result.message:
        raise EngineFailureError(result.message, result.log_tail or _log_tail(log))


def _log_tail(log: Path) -> list[str]:
    """Return the last lines on the guest's console without the engine's own marks.

    A panic is followed by a stack trace of any length, so the panic's line is included first.
    """
    with log.open("rb") as lines:
        lines.seek(max(0, log.stat().st_size - 200_000))
        text = lines.read().decode(errors="replace").splitlines()
    said = [line for line in text if line.strip() and not line.startswith(MARKS)]
    panics = [line for line in said[:-LOG_TAIL_LINES] if _PANIC.search(line)]
    return panics + said[-LOG_TAIL_LINES:]
