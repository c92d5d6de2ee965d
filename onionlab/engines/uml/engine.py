"""The engine `uml`: User-Mode Linux in time-travel mode, an ordinary process without privileges.

This module starts the kernel, monitors its simulated time, and makes sure that the kernel ends even
after an error. Inside the kernel, the code in guest/ runs the simulation.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import json
import os
import posixpath
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from analysis.formats.files import HOST_TEMPLATES, HOSTS, LOGS
from onionlab.engines.base import EPOCH_UNIX_S, Process, Progress, Simulation, Usage
from onionlab.engines.following import Command, follow
from onionlab.engines.processes import end_processes_below
from onionlab.engines.uml import memory
from onionlab.engines.uml.bootcheck import IN_PROCESSES, boot_command
from onionlab.engines.uml.console import GuestWatch, check_result
from onionlab.engines.uml.guest import description
from onionlab.engines.uml.guest.boot import BOOT_FILE, LOGS_FOLDER, RESULT_FILE, Boot, read_result
from onionlab.engines.uml.huge_pages import command as huge_pages_command
from onionlab.engines.uml.kernel import BuiltKernel
from onionlab.engines.uml.traffic.action_graph import load_graph
from onionlab.errors import UserError
from onionlab.paths import code_root

CONFIGURATION = "conf/uml.json"
LOG = "uml.log"
STATE_FOLDER = "uml.state"
OPEN_FILES = 65_536
START_ENDS_NS = 50 * 10**6

DEFAULT_OPTIONS: dict[str, Any] = {
    "memory_bytes": None,
    "stall_timeout_s": 120.0,
    "congestion_control": "cubic",
}

# Environment variables of TGen that the traffic driver does not support.
_UNSUPPORTED_VARIABLES = {"TGENHOSTNAME", "TGENSOCKS"}

_WRAPPERS = (
    # With random addresses of the guest's kernel, the amount of memory that the guest finds would
    # vary. Tor derives limits from this amount.
    *("setarch", "--addr-no-randomize"),
    # After a panic, the guest's kernel calls abort(3). A core dump of its memory would be useless.
    *("prlimit", "--core=0"),
)

_HUGE_PAGES_MARGIN_BYTES = 64 * 2**20
"""The size of the tmpfs with huge pages minus the size of the guest's memory. This space is for
other files in the tmpfs.
"""


class UmlEngine:
    """The embedded engine: all hosts of a simulation run inside one Linux kernel."""

    name = "uml"

    def __init__(self, kernel: BuiltKernel) -> None:
        self._kernel = kernel

    @property
    def identity(self) -> dict[str, str]:
        """The versions and hashes of the kernel, the interpreter and the engine's code.

        A change of one of them may change results.
        """
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
        """The executables that the engine provides: none, as its traffic driver replaces `tgen`."""
        return {}

    def configuration(self, simulation: Simulation) -> dict[str, bytes]:
        """Return the file that describes the simulation to the guest."""
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

    def run(
        self,
        directory: Path,
        *,
        simulation: Simulation,
        programs: Mapping[str, Path],
        on_progress: Callable[[Progress], None],
    ) -> Usage:
        """Boot the guest in `directory` and wait for its end. uml.log gets the guest's console."""
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
        watch = GuestWatch(
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
                    # Ctrl-C must not reach the guest itself, only the process that runs this
                    # code, which then ends the guest.
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
        check_result(read_result(directory / RESULT_FILE), directory / LOG, ended)
        return ended.usage

    def _command(self, simulation: Simulation, memory_bytes: int, directory: Path) -> list[str]:
        return boot_command(
            self._kernel.path,
            f"onionlab.seed={_guest_seed(simulation.seed)}",
            # IN_PROCESSES makes the kernel faster. It does not affect results, because the kernel
            # does not pass this parameter to programs as an environment variable.
            *([] if self._kernel.ptrace_because else [IN_PROCESSES]),
            # Until this time, clock reads and failing system calls take no simulated time. Their
            # number at the guest's start depends on the checkout and would otherwise move later
            # events. All programs start after this time (guest/init.py).
            f"onionlab.start={START_ENDS_NS}",
            memory_mib=memory_bytes // 2**20,
            start_unix_s=EPOCH_UNIX_S,
            state=STATE_FOLDER,
            root="ro",
            script=(
                *("-I", "-S", "-B"),
                Path(__file__).parent / "guest" / "__main__.py",
                directory / BOOT_FILE,
            ),
            random_addresses=False,
        )


def _move_logs(directory: Path) -> None:
    """Replace the log lines that were copied during the simulation by the guest's complete logs.

    Call this after the guest has ended, when no more lines are copied. If the guest ended
    prematurely, it has written no complete logs, and the copied lines remain.
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
    # Omit properties that have no effect. When a property is added to the format, the files of
    # simulations that do not use it thus stay the same.
    if any(loss != network.packet_loss for loss in network.path_loss.values()):
        data["path_loss"] = _matrix(number, {p: network.loss_of(p) for p in network.latency_us})
    if simulation.bootstrap_end_ms:
        data["bootstrap_end_ms"] = simulation.bootstrap_end_ms
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def _matrix(
    number: Mapping[str, int], values: Mapping[tuple[str, str], float]
) -> list[list[float]]:
    """Return a symmetric matrix of the values of pairs. number: the index of each place."""
    rows: list[list[float]] = [[0] * len(number) for _ in number]
    for (one, other), value in values.items():
        rows[number[one]][number[other]] = rows[number[other]][number[one]] = value
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


@cache
def _own_sha256() -> str:
    """Return a hash of the code on which a guest's behaviour depends (see `python_code`)."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    outside = (Path(__file__), folder / "bootcheck.py", folder / "system.py")
    for path in sorted((*outside, *folder.glob("guest/*.py"), *folder.glob("traffic/*.py"))):
        code = python_code(path.read_text(encoding="utf-8"))
        digest.update(f"{path.relative_to(folder)}\0{code}\0".encode())
    return digest.hexdigest()


def python_code(source: str) -> str:
    """Return Python source in a standard format, without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [one for one in body if not _is_docstring(one)]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
