"""Synthetic runs of a tornettools network: OnionTrace's and TGen's logs with known contents."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from analysis_synthetic import EPOCH, LogWriter

from analysis.formats import files

STOP_S = 2000

PROGRAMS = ("tornettools", "tgentools", "oniontracetools")
needs_tornettools = pytest.mark.skipif(
    any(shutil.which(name) is None for name in PROGRAMS),
    reason=f"needs {', '.join(PROGRAMS)} in PATH",
)


def stamp(time_us: int) -> str:
    """Return the beginning of a log line: date, time and Unix seconds.

    time_us: simulated time in microseconds.
    """
    seconds, micros = divmod(EPOCH * 1_000_000 + time_us, 1_000_000)
    text = np.datetime64(seconds, "s").astype(str).replace("T", " ")
    return f"{text} {seconds}.{micros:06d}"


@dataclass
class OnionTraceWriter:
    """Writes lines of one OnionTrace process. Times are microseconds of simulated time."""

    host: str
    lines: list[str] = field(default_factory=list)

    def line(self, time_us: int, text: str, level: str = "message", where: str = "main") -> None:
        self.lines.append(f"{stamp(time_us)} [{level}] [{where}] {text}")

    def start(self, time_us: int) -> Self:
        """Write the first lines, and return this writer."""
        self.line(time_us, f"Starting OnionTrace v1.0.0 on host {self.host} process id 1003")
        where = "_oniontracetorctl_processLine"
        self.line(time_us, "Controller-65313: Bootstrapped 100/100", "info", where)
        return self

    def event(self, time_us: int, text: str) -> None:
        self.line(time_us, f"Logger: 650 {text}", "default", "_oniontracelogger_logControlLine")

    def seconds(self, time_us: int, read: int, written: int) -> None:
        self.event(time_us, f"BW {read} {written}")

    def circuit(
        self,
        time_us: int,
        number: int,
        status: str,
        created_us: int,
        *,
        hops: int = 0,
        purpose: str = "GENERAL",
        reason: str = "",
    ) -> None:
        path = ",".join(f"${n:040X}~relay{n}" for n in range(hops))
        created = np.datetime64((EPOCH * 1_000_000) + created_us, "us").astype(str)
        words = [f"CIRC {number} {status}", *([path] if path else []), "BUILD_FLAGS=NEED_CAPACITY"]
        words += [f"PURPOSE={purpose}", f"TIME_CREATED={created}"]
        words += [f"REASON={reason}"] if reason else []
        self.event(time_us, " ".join(words))

    def text(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()


def perf_log(host: str, rng: np.random.Generator, *, slow: float = 1.0) -> bytes:
    """Return the log of a perf client that downloads 50 KiB, 1 MiB or 5 MiB each minute.

    Some downloads time out.
    """
    log = LogWriter(host).start()
    for minute in range(5, STOP_S // 60):
        start = 60.0 * minute
        size, timeout_s = [(51200, 15.0), (2**20, 60.0), (5 * 2**20, 120.0)][
            int(rng.choice(3, p=[0.6, 0.25, 0.15]))
        ]
        command = round(slow * float(rng.uniform(0.1, 0.8)), 6)
        first = round(command + slow * float(rng.uniform(0.1, 1.5)), 6)
        last = round(first + slow * size / 200_000 * float(rng.lognormal(0.0, 0.4)), 6)
        stream = log.create()
        log.heartbeat(start + 0.5, 0)
        if rng.random() < 0.2:
            fate: Any = {"payload": 0, "error": "PROXY", "transport_error": "TIMEOUT"}
            log.end(start + timeout_s / 15, stream, start, requested=size, **fate)
            continue
        for part in np.arange(0.05, 1.0, 0.05):
            at = round(start + first + float(part) * (last - first), 6)
            log.status(at, stream, size, int(part * size), server=stream % 3 + 1)
        times: Any = {"command_s": command, "first_byte_s": first, "last_byte_s": last}
        log.end(round(start + last, 6), stream, start, requested=size, **times)
    log.heartbeat(float(STOP_S), 0)
    return log.text()


def circuits_log(host: str, rng: np.random.Generator, *, relay: bool, slow: float = 1.0) -> bytes:
    """Return OnionTrace's log of a relay (bytes each second) or a client (bytes and circuits)."""
    log = OnionTraceWriter(host).start(241_000_000)
    for second in range(250, STOP_S):
        log.seconds(second * 1_000_000 + 865_305, *map(int, rng.integers(0, 2_000_000, 2)))
        if not relay and second % 20 == 0:
            created = second * 1_000_000 + int(rng.integers(0, 900_000))
            number = second // 20
            log.circuit(created, number, "LAUNCHED", created)
            end = created + int(1e6 * slow * float(rng.uniform(0.2, 3.0)))
            failed = rng.random() < 0.1
            status, reason = ("FAILED", "TIMEOUT") if failed else ("BUILT", "")
            log.circuit(end, number, status, created, hops=1 if failed else 3, reason=reason)
            if not failed and rng.random() < 0.2:
                log.circuit(end + 5_000_000, number, "BUILT", created, hops=4)
    return log.text()


CLIENTS = {
    "perfclient1exit": "perf-exit",
    "perfclient2exit": "perf-exit",
    "perfclient3onionservice": "perf-onionservice",
}
RELAYS = {"4uthority1": "authority", "relay1exitguard": "exitguard", "relay2middle": "middle"}


def write_tornet_run(run: Path, seed: int, slow: float = 1.0) -> None:
    """Write a whole run directory, in which times are multiplied by ``slow``.

    The random draws depend on the seed and not on ``slow``, so runs that differ only in ``slow``
    form a pair.
    """
    hosts = {}
    for number, host in enumerate([*CLIENTS, *RELAYS]):
        rng = np.random.default_rng([seed, number])
        folder = run / files.HOSTS / host
        folder.mkdir(parents=True)
        is_relay = host in RELAYS
        trace = circuits_log(host, rng, relay=is_relay, slow=slow)
        (folder / "oniontrace.1003.stdout").write_bytes(trace)
        if not is_relay:
            (folder / "tgen.1004.stdout").write_bytes(perf_log(host, rng, slow=slow))
        hosts[host] = {"role": RELAYS.get(host, "perf-client"), "oniontrace": True}
    hosts["server1exit"] = {"role": "server"}
    (run / files.HOST_ROLES).write_text(json.dumps({"hosts": hosts}))
    (run / files.CLIENTS).write_text(json.dumps(CLIENTS))
    (run / files.RUN).write_text(json.dumps({"epoch_unix_s": EPOCH, "stop_s": STOP_S}))
