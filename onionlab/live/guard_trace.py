"""Run a private network under load, and trace cells at its guard with LTTng, to a file, or both."""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from analysis.celltrace.cells import Cells, join
from analysis.celltrace.events import Trace, read_lttng_text, read_trace
from onionlab.live import guard_load, lttng, private_network

LOG = logging.getLogger(__name__)
TRACE_FILE = "cells.trace"
SETTLE_S = 2.0
RELAY_PAYLOAD_BYTES = 498
"""The stream payload of a relay cell (RELAY_PAYLOAD_SIZE of Tor)."""


@dataclass(frozen=True)
class Work:
    """The work of a guard under one tracing method (see `load_guard`).

    seconds: the duration of the load. downloads, bytes: the number and the total size of complete
    downloads.
    """

    tracing: str
    seconds: float
    downloads: int
    bytes: int
    guard_cpu_s: float

    @property
    def cpu_us_per_cell(self) -> float:
        """The guard's CPU time in microseconds per RELAY_PAYLOAD_BYTES of complete downloads."""
        return 1e6 * self.guard_cpu_s / max(1.0, self.bytes / RELAY_PAYLOAD_BYTES)


@dataclass(frozen=True)
class LiveTrace:
    """The traces of one run, recorded by LTTng and in a file at the same time.

    cells: computed from LTTng's events. lttng_bytes, file_bytes: the sizes of the traces on disk.
    warnings: what babeltrace2 printed while it converted LTTng's trace.
    """

    work: Work
    lttng: Trace
    file: Trace
    cells: Cells
    lttng_bytes: int
    file_bytes: int
    warnings: str


def load_guard(tor: Path, folder: Path, *, tracing: str, scheduler: str, seconds: float) -> Work:
    """Run a network in ``folder``, put it under load with downloads, and return its guard's work.

    tracing: "none", "file", "lttng" or "both". scheduler: Tor's option `Schedulers`. seconds: the
    duration of the measured load.
    """
    lines = []
    if tracing in ("file", "both"):
        lines.append(f"CellTraceFile {folder / 'guard' / TRACE_FILE}")
    if tracing in ("lttng", "both"):
        lines.append("CellTrace 1")
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        if tracing in ("lttng", "both"):
            stack.enter_context(lttng.session(folder.with_name(folder.name + ".lttng")))
        with (
            private_network.running(tor, folder, scheduler=scheduler, guard_lines=lines) as net,
            guard_load.server() as port,
        ):
            # Build the client's circuits before the measurement starts.
            guard_load.load(net.socks_port, port, SETTLE_S)
            LOG.info("%s: %g s of downloads", tracing, seconds)
            before_s, began = net.cpu_s(private_network.GUARD), time.monotonic()
            count, size = guard_load.load(net.socks_port, port, seconds)
            return Work(
                tracing=tracing,
                seconds=time.monotonic() - began,
                downloads=count,
                bytes=size,
                guard_cpu_s=net.cpu_s(private_network.GUARD) - before_s,
            )


def trace_guard(tor: Path, folder: Path, *, scheduler: str, seconds: float) -> LiveTrace:
    """Trace the guard with LTTng and to a file at the same time, and read both traces.

    Raises UserError if the network or LTTng fails, and AnalysisError if a trace is empty or
    damaged.
    """
    recorded = folder.with_name(folder.name + ".lttng")
    shutil.rmtree(recorded, ignore_errors=True)
    work = load_guard(tor, folder, tracing="both", scheduler=scheduler, seconds=seconds)
    text = folder.with_name(folder.name + ".txt")
    LOG.info("reading LTTng's trace with babeltrace2")
    warnings = lttng.to_text(recorded, text)
    trace = read_lttng_text(text)
    # The text is seven times as large as LTTng's trace and can be regenerated from it.
    text.unlink()
    path = folder / "guard" / TRACE_FILE
    return LiveTrace(
        work=work,
        lttng=trace,
        file=read_trace(path),
        cells=join(trace),
        lttng_bytes=sum(p.stat().st_size for p in recorded.rglob("*") if p.is_file()),
        file_bytes=path.stat().st_size,
        warnings=warnings,
    )
