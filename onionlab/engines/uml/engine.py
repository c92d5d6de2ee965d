"""The engine `uml`: User-Mode Linux in time-travel mode, an ordinary process of an ordinary user.

This side starts the kernel, follows its simulated time, and ends it in every case. What happens in
the simulation is the guest's matter (guest/).
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
from onionlab.engines.following import Command, Ended, follow
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
LONGEST_LOOK_S = 10.0
"""Between two looks at a guest; if it takes longer, this process was stopped meanwhile."""
MAX_LOW_MEMORY = 0.05
"""Of the guest's memory: with less free it may do nothing but look for some."""

_MORE_MEMORY = "Give it more: `engine: {uml: {memory: ...}}` in the experiment"

DEFAULT_OPTIONS: dict[str, Any] = {
    "memory_bytes": None,
    "stall_timeout_s": 120.0,
    "congestion_control": "cubic",
}

_Value = TypeVar("_Value", int, float)

# Of TGen's own environment variables, those that the traffic driver does not follow.
_REFUSED_OF_TGEN = {"TGENHOSTNAME", "TGENSOCKS"}

_WRAPPERS = (
    # How much memory the guest finds depends on where its kernel lies in the host's memory.
    *("setarch", "--addr-no-randomize"),
    # A guest's panic ends in abort(3); its memory on the disk would help nobody.
    *("prlimit", "--core=0"),
)

_HUGE_PAGES_MARGIN_BYTES = 64 * 2**20
"""Of the tmpfs with huge pages, beyond the memory of the guest: for what else lies there."""

_END = re.compile(rb"^" + END_MARK.encode() + rb" ([^\r\n]*)\r?\n", re.MULTILINE)
_TIME = re.compile(rb"^" + TIME_MARK.encode() + rb" (\d+) (\d+)\r?\n", re.MULTILINE)
_LINE = re.compile(
    rb"^" + LOG_MARK.encode() + rb" ([\w-]+) ([\w.+-]+) ([^\r\n]*)\r?\n", re.MULTILINE
)
_PANIC = re.compile(r"Kernel panic - not syncing: (.*)")
# What a kernel without any simulated time to wait for says.
_OUT_OF_MEMORY = ("panic_on_oom", "Out of memory")


class Kernel(Protocol):
    """What the engine needs to know of the kernel that it runs (see kernel.py)."""

    @property
    def path(self) -> Path:
        """The executable."""

    @property
    def version(self) -> str:
        """Its release."""

    @property
    def sha256(self) -> str:
        """Of the executable."""

    @property
    def ptrace_because(self) -> str:
        """Why it cannot run inside of its processes; empty where it can."""

    @property
    def calls(self) -> Path | None:
        """The library by which programs call it; None without one."""

    @property
    def calls_sha256(self) -> str:
        """Of that library; empty without one."""


class UmlEngine:
    """A Linux kernel built for it, with all hosts of a simulation inside."""

    name = "uml"

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    @property
    def identity(self) -> dict[str, str]:
        """The kernel, the interpreter and the engine's own code: each may change results."""
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
        """None: the program `tgen` of a host stands for the traffic driver, a part of this."""
        return {}

    def configuration(self, simulation: Simulation) -> dict[str, bytes]:
        """Return the simulation as the guest reads it."""
        return {CONFIGURATION: _describe(simulation)}

    def check_files(self, simulation: Simulation, files: Mapping[str, bytes]) -> None:
        """Refuse graphs of TGen that the traffic driver cannot play. Raises UserError."""

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
                        f"host {host}: the embedded engine cannot play its graph of TGen: "
                        f"{error.message}",
                        "run it on Shadow: ENGINE=shadow",
                    ) from error

    def cpus_per_run(self, options: Mapping[str, Any]) -> int:
        """One: the guest has a single processor, and its processes take turns."""
        return 1

    def run(
        self,
        directory: Path,
        *,
        simulation: Simulation,
        programs: Mapping[str, Path],
        on_progress: Callable[[Progress], None],
    ) -> Usage:
        """Boot the guest in `directory`; its console goes to uml.log."""
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
                    words=[
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
                    # Ctrl-C is for the command that runs this, which then ends the guest.
                    own_session=True,
                    shared_bytes=memory.nameless_files_bytes,
                ),
                simulated_s=watch.look,
                stop_s=simulation.stop_ms / 1000,
                on_progress=on_progress,
            )
        finally:
            # The guest's processes fall with its kernel, but not at once.
            end_processes_below(directory)
            shutil.rmtree(state, ignore_errors=True)
        _take_logs(directory)
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
            # What programs find is the same.
            *([] if self._kernel.ptrace_because else [IN_PROCESSES]),
            # The guest's own start takes no simulated time; how much it has to do depends on the
            # checkout. Ends before anything is started (guest/init.py).
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
    """Follows a guest's simulated time, and notices when it stands still.

    Time in which this process was stopped does not count: the guest was stopped with it.

    hosts: where the logs of watched hosts grow meanwhile (see _take_logs). memory_bytes: of the
    guest.
    """

    log: Path
    hosts: Path
    patience_s: float
    memory_bytes: int
    simulated_s: float = 0.0
    _free_bytes: int | None = None
    _doing: str = ""
    _offset: int = 0

    def __post_init__(self) -> None:
        self._looked_wall_s = time.monotonic()
        self._still_s = 0.0

    def look(self) -> float:
        """Return the simulated time. Raises EngineFailureError where it stands still too long."""
        now_wall_s = time.monotonic()
        self._still_s += min(now_wall_s - self._looked_wall_s, LONGEST_LOOK_S)
        self._looked_wall_s = now_wall_s
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
        if still_s > self.patience_s and self._offset == 0 and not new:
            raise EngineFailureError(
                f"the guest has said nothing for {still_s:.0f} s: it does not start"
            )
        if still_s > self.patience_s and self._doing:
            raise EngineFailureError(
                f"the simulated time is over, and the guest does not end: {self._doing} has taken "
                f"{still_s:.0f} s",
                _log_tail(self.log),
            )
        if still_s > self.patience_s:
            raise EngineFailureError(
                f"simulated time stands still: after {self.simulated_s:.0f} s of it, the next "
                f"second has not ended for {still_s:.0f} s. {self._likely_cause()}",
                _log_tail(self.log),
            )
        return self.simulated_s

    def _likely_cause(self) -> str:
        if self._free_bytes is None or self._free_bytes > MAX_LOW_MEMORY * self.memory_bytes:
            return "A program that never sleeps does that"
        return (
            f"The guest is short of memory: {self._free_bytes // 2**20} of "
            f"{self.memory_bytes // 2**20} MiB were free. {_MORE_MEMORY}"
        )

    def _add_lines(self, said: bytes) -> None:
        """Add what the guest repeats of logs to them; a full disk is not its matter."""
        for host, name, line in _LINE.findall(said):
            with contextlib.suppress(OSError):
                folder = self.hosts / host.decode()
                folder.mkdir(parents=True, exist_ok=True)
                with (folder / name.decode()).open("ab") as log:
                    log.write(line + b"\n")


def _take_logs(directory: Path) -> None:
    """Put the logs that the guest left in place of the lines that it repeated meanwhile.

    Only now, as nobody adds such lines any more. A guest that ended before its time left none.
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
    # What most simulations lack is not said of them: their files stay as they were.
    if any(loss != network.packet_loss for loss in network.path_loss.values()):
        data["path_loss"] = _matrix(number, {p: network.loss_of(p) for p in network.latency_us})
    if simulation.bootstrap_end_ms:
        data["bootstrap_end_ms"] = simulation.bootstrap_end_ms
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def _matrix(
    number: Mapping[str, int], of_pair: Mapping[tuple[str, str], _Value]
) -> list[list[_Value | int]]:
    """Return what each pair of places has, in rows and columns of their numbers."""
    rows: list[list[_Value | int]] = [[0] * len(number) for _ in number]
    for (one, other), value in of_pair.items():
        rows[number[one]][number[other]] = value
        rows[number[other]][number[one]] = value
    return rows


def _check_traffic(host: str, process: Process) -> None:
    """Refuse what the traffic driver does not do in TGen's place. Raises UserError."""
    wrong = ""
    if len(process.arguments) != 1:
        wrong = f"takes one argument, a graph, and not {' '.join(process.arguments)!r}"
    elif refused := sorted(_REFUSED_OF_TGEN & process.environment.keys()):
        wrong = f"has no {refused[0]}, which its environment sets"
    elif not process.runs_to_end:
        wrong = "runs to the end, and this one is to end before"
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


def _check(result: Result | None, log: Path, ended: Ended) -> None:
    if result is None:
        tail = _log_tail(log)
        panic = next((found[1] for line in tail if (found := _PANIC.search(line))), None)
        if panic is None:
            message = f"the guest ended before its time: its kernel {ended}"
        elif any(sign in line for sign in _OUT_OF_MEMORY for line in tail):
            message = f"the guest ran out of memory. {_MORE_MEMORY}"
        else:
            message = f"the guest's kernel panicked: {panic}"
        raise EngineFailureError(message, tail)
    if result.message:
        raise EngineFailureError(result.message, result.log_tail or _log_tail(log))


def _log_tail(log: Path) -> list[str]:
    """Return the last lines of the guest's own on its console.

    A panic is followed by a stack trace: its line comes first, however long that is.
    """
    with log.open("rb") as lines:
        lines.seek(max(0, log.stat().st_size - 200_000))
        text = lines.read().decode(errors="replace").splitlines()
    said = [line for line in text if line.strip() and not line.startswith(MARKS)]
    panics = [line for line in said[:-LOG_TAIL_LINES] if _PANIC.search(line)]
    return panics + said[-LOG_TAIL_LINES:]
