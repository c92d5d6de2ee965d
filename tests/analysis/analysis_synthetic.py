"""Synthetic run directories: logs with known contents, in tgen's own format.

``LogWriter`` writes single lines of one client. ``client_log`` returns a client's whole log, with
streams, pauses, timeouts at heartbeats, and a stream that the end of the run cuts off.
``write_run`` writes a run directory with many of these logs. ``write_store`` writes a study of nine
runs, with the logs and the records of each run.
"""

from __future__ import annotations

import copy
import csv
import gzip
import hashlib
import json
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import zstandard

from analysis.arrays import Floats
from analysis.formats import columns, files
from analysis.formats.record_files import ParseReport
from analysis.formats.study import Level
from analysis.measures.data import Streams
from analysis.records.extract import extract

T = TypeVar("T")

EPOCH = 946684800
KIB = 1024
GOLDEN = Path(__file__).parent / "data" / "golden"
"""Logs of a real TGen, and the values that tgentools reads from them."""

TABLES = {f"{name}.parquet": table for name, table in columns.TABLES.items()}
"""Name of a file -> the columns of its table."""


def forget_hashes(path: Path) -> None:
    """Remove the tables' hashes from a parse.json or published.json.

    Older versions wrote no hashes. Without hashes, a changed table is refused only if its content
    is invalid.
    """
    content = json.loads(path.read_text())
    del content["tables"]
    path.write_text(json.dumps(content))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": zstandard.compress,
}
"""Suffix of a compressed file -> function that compresses its content."""


def known(value: T | None) -> T:
    """Return ``value``. Fail if it is None."""
    assert value is not None
    return value


def golden_text(name: str) -> bytes:
    """Return the content of a log in GOLDEN, decompressed."""
    text = (GOLDEN / name).read_bytes()
    return gzip.decompress(text) if name.endswith(".gz") else text


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def digests(directory: Path) -> dict[str, str]:
    """Return the hash of each file below a directory."""
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def make_streams(
    rows: Sequence[tuple[int, float, float, str]],
    ttfb_s: Sequence[float] | None = None,
    done_s: Sequence[float] | None = None,
) -> Streams:
    """Return streams given as (client, start, end, outcome), with times in seconds.

    Args:
        rows: the streams.
        ttfb_s: times from the start of each stream to its first byte. NaN stands for a stream that
            got no byte. If this is None, no stream got a byte. The times from the command to the
            first byte are 0.25 s shorter.
        done_s: times to 320 KiB, in the same form. They are also the times to the last byte.
    """

    def column(values: Sequence[float] | None) -> Floats:
        return np.full(len(rows), np.nan) if values is None else np.array(values, dtype=np.float64)

    return Streams(
        client=np.array([row[0] for row in rows], dtype=np.int64),
        start_s=column([row[1] for row in rows]),
        end_s=column([row[2] for row in rows]),
        outcome=np.array([row[3] for row in rows], dtype=np.str_),
        ttfb_s=column(ttfb_s),
        ttfb_from_command_s=column(ttfb_s) - 0.25,
        marks_s={"time_to_320kib_s": column(done_s)},
        time_to_last_byte_s=column(done_s),
        bytes_requested=column(None),
    )


@dataclass
class LogWriter:
    """Writes the log lines of one tgen client. Times are seconds since the start of the run."""

    name: str
    lines: list[str] = field(default_factory=list)
    created: int = 0
    succeeded: int = 0
    failed: int = 0
    beat: dict[str, int] = field(default_factory=dict)

    def line(
        self, time_s: float, text: str, where: str = "[tgen-main.c:43] [_tgenmain_run]"
    ) -> None:
        micros = round(time_s * 1e6)
        seconds = EPOCH + micros // 1_000_000
        stamp = np.datetime64(seconds, "s").astype(str).replace("T", " ")
        level = "info" if "[stream-status]" in text else "message"
        self.lines.append(f"{stamp} {seconds}.{micros % 1_000_000:06d} [{level}] {where} {text}")

    def start(self, time_s: float = 240.0) -> Self:
        """Write the first line, and return this writer."""
        self.line(
            time_s,
            "Initializing TGen v1.1.2 running GLib v2.74.6 and IGraph v0.10.2 "
            f"on host {self.name} with process id 1000",
        )
        return self

    def create(self) -> int:
        self.created += 1
        self.beat["created"] = self.beat.get("created", 0) + 1
        return self.created - 1

    def heartbeat(self, time_s: float, bytes_read: int, bytes_written: int = 0) -> None:
        pairs = [f"bytes-read={bytes_read}", f"bytes-written={bytes_written}"]
        for kind in ("streams", "flows"):
            for key in ("created", "succeeded", "failed"):
                if self.beat.get(key):
                    pairs.append(f"{kind}-{key}={self.beat[key]}")
        totals = {"created": self.created, "succeeded": self.succeeded, "failed": self.failed}
        totals["pending"] = self.created - self.succeeded - self.failed
        for kind in ("streams", "flows"):
            pairs += [f"total-{kind}-{key}={n}" for key, n in totals.items() if n]
        self.beat = {}
        where = "[tgen-driver.c:254] [_tgendriver_onHeartbeat]"
        self.line(time_s, f"[driver-heartbeat] [{','.join(pairs)}]", where)

    def end(
        self,
        end_s: float,
        stream_id: int,
        start_s: float,
        *,
        requested: int = 320 * KIB,
        payload: int | None = None,
        error: str = "NONE",
        transport_error: str = "NONE",
        command_s: float | None = None,
        first_byte_s: float | None = None,
        last_byte_s: float | None = None,
    ) -> None:
        """Write the line of a stream that ended.

        ``payload``, the received bytes, is ``requested`` by default. The times ``command_s``,
        ``first_byte_s`` and ``last_byte_s`` count from ``start_s``.
        """
        payload = requested if payload is None else payload

        def us(value: float | None) -> int:
            return -1 if value is None else round(value * 1e6)

        success = error == "NONE"
        key = "succeeded" if success else "failed"
        self.beat[key] = self.beat.get(key, 0) + 1
        if success:
            self.succeeded += 1
        else:
            self.failed += 1
        state = "SUCCESS" if success else "PAYLOAD"
        progress = 100 * payload / requested if requested else 100.0
        total = payload + (98 if payload else 0)
        created = us(start_s) + 5_000_000
        self.line(
            end_s,
            f"[stream-{'success' if success else 'error'}] transport [fd=9,"
            "local=localhost:127.0.0.1:21473,proxy=localhost:127.0.0.1:9050,"
            f"remote=server{stream_id % 3 + 1}:11.0.0.5:80,state=SUCCESS_OPEN,"
            f"error={transport_error}] stream [id={stream_id},vertexid=stream,name={self.name},"
            f"peername={'(null)' if first_byte_s is None else f'server{stream_id % 3 + 1}'},"
            f"sendsize=1024,recvsize={requested},sendstate=SEND_{state},recvstate=RECV_{state},"
            f"error={error}] bytes [total-bytes-recv={total},total-bytes-send=3238,"
            f"payload-bytes-recv={payload},payload-bytes-send=1024,"
            f"payload-progress-recv={progress:.2f}%,payload-progress-send=100.00%] times ["
            f"created-ts={created},usecs-to-socket-create=0,usecs-to-socket-connect=0,"
            "usecs-to-proxy-init=0,usecs-to-proxy-choice=0,usecs-to-proxy-request=0,"
            f"usecs-to-proxy-response={us(command_s)},usecs-to-command={us(command_s)},"
            f"usecs-to-response={us(first_byte_s)},usecs-to-first-byte-recv={us(first_byte_s)},"
            f"usecs-to-last-byte-recv={us(last_byte_s)},"
            f"usecs-to-checksum-recv={us(last_byte_s if success else None)},"
            f"usecs-to-first-byte-send={us(command_s)},usecs-to-last-byte-send={us(command_s)},"
            f"usecs-to-checksum-send={us(command_s)},now-ts={us(end_s) + 5_000_000}]",
            "[tgen-stream.c:1738] [_tgenstream_log]",
        )

    def status(
        self, time_s: float, stream_id: int, requested: int, payload: int, server: int = 1
    ) -> None:
        self.line(
            time_s,
            "[stream-status] transport [fd=9,local=localhost:127.0.0.1:21473,"
            f"proxy=localhost:127.0.0.1:9050,remote=server{server}:11.0.0.5:80,state=SUCCESS_OPEN,"
            f"error=NONE] stream [id={stream_id},vertexid=stream,name={self.name},"
            f"peername=server{server},sendsize=1024,recvsize={requested},sendstate=SEND_FOOTER,recvstate=RECV_PAYLOAD,"
            f"error=NONE] bytes [total-bytes-recv={payload + 64},total-bytes-send=3238,"
            f"payload-bytes-recv={payload},payload-bytes-send=1024,"
            f"payload-progress-recv={100 * payload / requested:.2f}%,"
            "payload-progress-send=100.00%]",
            "[tgen-stream.c:1754] [_tgenstream_log]",
        )

    def text(self) -> bytes:
        return "".join(line + "\n" for line in self.lines).encode()


@dataclass(frozen=True)
class Load:
    """The behaviour of a class of clients. ``slow`` multiplies the durations of all downloads."""

    request_bytes: int
    pause_s: tuple[float, float]
    ttfb_median_s: float
    bytes_per_s: float
    slow: float = 1.0
    timeout_s: float = 60.0
    error_rate: float = 0.004


WEB = Load(320 * KIB, (5.0, 15.0), 1.2, 110_000.0)
BULK = Load(5 * KIB * KIB, (0.0, 0.0), 1.8, 160_000.0)


def client_log(name: str, load: Load, rng: np.random.Generator, *, stop_s: float = 1080.0) -> bytes:
    """Return one client's log: one stream after another until the simulation stops."""
    log = LogWriter(name).start()
    beat_s, carried = 241.0, 0

    def beats_until(end_s: float) -> None:
        nonlocal beat_s, carried
        while beat_s < min(end_s, stop_s):
            log.heartbeat(beat_s, carried)
            beat_s, carried = beat_s + 1.0, 0

    start = 300.0 + float(rng.uniform(0, load.pause_s[1] or 1.0))
    beats_until(start)
    while start < stop_s:
        stream = log.create()
        ttfb = load.slow * load.ttfb_median_s * float(rng.lognormal(0.0, 0.55))
        rate = load.bytes_per_s / load.slow * float(rng.lognormal(0.0, 0.7))
        whole = ttfb + load.request_bytes / rate
        fails = float(rng.random()) < load.error_rate
        end = start + (ttfb * 0.8 if fails else whole)
        asked: Any = {"requested": load.request_bytes, "command_s": ttfb / 2}
        read = 0
        timed_out = False
        while beat_s <= end and beat_s < stop_s:
            share = (beat_s - start - ttfb) / (whole - ttfb)
            got = int(max(0.0, min(1.0, share)) * load.request_bytes)
            if beat_s >= start + load.timeout_s:
                timed_out = True
                end = beat_s
                first = ttfb if ttfb < beat_s - start else None
                last = first and beat_s - start - 0.01
                fate: Any = {"error": "TIMEOUT", "first_byte_s": first, "last_byte_s": last}
                log.end(beat_s, stream, start, payload=got, **asked, **fate)
            log.heartbeat(beat_s, got - read + carried)
            beat_s, carried, read = beat_s + 1.0, 0, got
        if end >= stop_s:
            break
        if fails and not timed_out:
            asked = {"requested": load.request_bytes, "payload": 0}
            log.end(end, stream, start, error="PROXY", transport_error="STATUS", **asked)
        elif not timed_out:
            log.end(end, stream, start, first_byte_s=ttfb, last_byte_s=whole, **asked)
            carried = load.request_bytes - read + 98
        start = end + float(rng.uniform(*load.pause_s))
        beats_until(start)
    return log.text()


def write_logs(run_directory: Path, logs: dict[str, tuple[str, bytes]]) -> None:
    """Write a run directory with these logs, given as host -> (class, log bytes)."""
    for host, (_, text) in logs.items():
        directory = run_directory / "shadow.data" / "hosts" / host
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "tgen.1000.stdout").write_bytes(text)
    clients = {host: name for host, (name, _) in logs.items()}
    (run_directory / "clients.json").write_text(json.dumps(clients))
    (run_directory / "run.json").write_text(json.dumps({"epoch_unix_s": EPOCH, "stop_s": 1080.0}))


def extract_log(folder: Path, data: bytes, suffix: str = "") -> ParseReport:
    """Write the log of one web client, and extract its records into ``folder / "out"``.

    suffix: the suffix of compressed data, such as ".gz".
    """
    write_logs(folder / "run", {"client1": ("web", data)})
    log = folder / "run" / "shadow.data" / "hosts" / "client1" / "tgen.1000.stdout"
    log.rename(log.with_name(log.name + suffix))
    report = extract(folder / "run", folder / "out")
    log.with_name(log.name + suffix).unlink()
    return report


def write_run(
    run_directory: Path, seed: int, slow: float = 1.0, web: int = 8, bulk: int = 2
) -> None:
    """Write a run of ``web`` and ``bulk`` clients.

    The random draws depend on the seed and not on ``slow``, so runs that differ only in ``slow``
    form a pair.
    """
    logs: dict[str, tuple[str, bytes]] = {}
    for kind, count, load in (("web", web, WEB), ("bulk", bulk, BULK)):
        for number in range(1, count + 1):
            rng = np.random.default_rng([seed, number, len(kind)])
            host = f"{kind}{number}client"
            logs[host] = (kind, client_log(host, replace(load, slow=slow), rng))
    write_logs(run_directory, logs)


VARIANTS: list[dict[str, Any]] = [
    {"name": name, "label": label, "color": color, "marker": marker, "linestyle": linestyle}
    for name, label, color, marker, linestyle in (
        ("ewma", "EWMA", "#0072B2", "o", "solid"),
        ("rr", "Round robin", "#D55E00", "s", "dashed"),
        ("swrr", "SWRR", "#009E73", "^", "dashdot"),
    )
]


def study_content(
    seeds: list[int], levels: Sequence[str] = ("5mid",), variants: list[dict[str, Any]] = VARIANTS
) -> dict[str, Any]:
    """Return the content of a study.json. Each run has a folder, with its records inside.

    Each level has one figure of each kind that draws a line per variant.
    """
    return {
        "format": 1,
        "name": "swrr-test",
        "title": "Scheduling <script> & congestion",
        "description": "Three circuit policies on a small synthetic network.",
        "baseline": "ewma",
        "variants": copy.deepcopy(variants),
        "levels": [
            {
                "name": level,
                "label": level.replace("mid", " middles"),
                "measured_start_s": 420.0,
                "measured_end_s": 1020.0,
                "stop_s": 1080.0,
                "classes": {
                    name: {"timeout_s": 60.0, "request_bytes": size, "count": count}
                    for name, size, count in (("web", 327680, 8), ("bulk", 5242880, 2))
                },
            }
            for level in levels
        ],
        "figures": [
            {"id": f"{kind}-{level}", "kind": kind, "level": level, "title": title}
            for level in levels
            for kind, title in (
                ("throughput-timeouts", "Throughput and timeouts"),
                ("ttfb-320kib", "Time to first byte and to 320 KiB"),
                ("quantile-ratios", "Times as ratios to the baseline's"),
            )
        ],
        "runs": [
            {"run_id": name, "level": level, "variant": variant["name"], "seed": seed}
            | {"directory": name, "records": f"{name}/{files.RECORDS}"}
            for level in levels
            for variant in variants
            for seed in seeds
            for name in [f"{level}-{variant['name']}-{seed}"]
        ],
        "asked": {"scale": 0.1, "seeds": seeds, "engine": "shadow"},
        "shrunk": ["bulk clients 80 -> 2", "web clients 320 -> 8"],
        "provenance": {"tor": {"version": "0.4.9.11"}, "host": {"cores": 2}},
    }


LEVEL = Level.model_validate(study_content([1])["levels"][0])


def make_level(begin_s: float, end_s: float, stop_s: float, **more: Any) -> Level:
    """Return a level without clients. more: keys of the level that replace the usual values."""
    span = {"measured_start_s": begin_s, "measured_end_s": end_s, "stop_s": stop_s}
    return Level.model_validate({"name": "only", "label": "only", "classes": {}, **span, **more})


def write_store(store: Path) -> Path:
    """Write a study of three networks with its runs' logs and records. Return ``store``."""
    content = study_content([1, 2, 3])
    slow = {"ewma": 1.0, "rr": 1.15, "swrr": 0.93}
    for run in content["runs"]:
        directory = store / run["directory"]
        write_run(directory, run["seed"], slow[run["variant"]], web=6, bulk=2)
        extract(directory, store / run["records"])
    (store / "study.json").write_text(json.dumps(content))
    return store


def changed_study(folder: Path, **changes: Any) -> Path:
    """Write the study of ``write_store`` with some changed keys into a folder. Return its file."""
    path = folder / "study.json"
    path.write_text(json.dumps({**study_content([1, 2, 3]), **changes}))
    return path
