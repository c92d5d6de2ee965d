"""Run a private network of native Tor processes (no simulation); trace its guard with LTTng."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator

import numpy as np

from analysis.celltrace.cells import JOINED, MEANINGS, Fate
from analysis.celltrace.events import Event
from analysis.celltrace.statistics import Group, Stage, relayed, summarise
from onionlab.commands._arguments import add_jobs_argument
from onionlab.errors import UserError
from onionlab.live import lttng
from onionlab.live.guard_trace import LiveTrace, Work, load_guard, trace_guard
from onionlab.live.live_tor import ensure_live_tor
from onionlab.paths import working_root

HELP = "trace a real guard of a small private network on this machine with LTTng"
OVERHEAD = ("none", "file", "lttng")
END_S = 9e9
"""A time after the end of every trace, in seconds since 1970."""


def setup_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--duration", type=float, default=30.0, metavar="S", help="seconds of load (default: 30)"
    )
    parser.add_argument(
        "--scheduler",
        choices=("KIST", "KISTLite", "Vanilla"),
        default="KIST",
        help="Tor's scheduler (default KIST)",
    )
    parser.add_argument(
        "--overhead",
        type=int,
        default=0,
        metavar="ROUNDS",
        help="also measure the cost of tracing to the guard: rounds of none, file and LTTng",
    )
    add_jobs_argument(parser, "maximum number of compilers at a time (default: CPUs)")


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.duration <= 600:
        raise UserError("--duration is between 1 and 600")
    root = working_root()
    tor = ensure_live_tor(root, jobs=args.jobs)
    out = root / "results" / "celltrace-live"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with lttng.daemon():
        trace = trace_guard(tor, out / "network", scheduler=args.scheduler, seconds=args.duration)
        works = []
        for number in range(1, args.overhead + 1):
            for tracing in OVERHEAD:
                folder = out / f"overhead-{number}-{tracing}"
                works.append(
                    load_guard(
                        tor,
                        folder,
                        tracing=tracing,
                        scheduler=args.scheduler,
                        seconds=args.duration,
                    )
                )
                # Remove the traces, which take up hundreds of megabytes. Only the CPU time for
                # writing them is reported.
                for left in out.glob(f"{folder.name}*"):
                    shutil.rmtree(left)
    lines = [*report(trace, args.scheduler), *overhead(works)]
    (out / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print()
    print("\n".join(lines))
    print(f"\n{out / 'report.txt'}")
    return 0


def report(trace: LiveTrace, scheduler: str) -> Iterator[str]:
    """Yield lines that report a live trace: the amount of data, the cells' fates and their delays.

    One line says whether LTTng's trace and the trace file have the same events.
    """
    work = trace.work
    yield f"Guard of a private network on the loopback interface, {scheduler}, native Tor, LTTng"
    yield (
        f"{work.downloads} downloads, {work.bytes / 1e6:.1f} MB in {work.seconds:.1f} s; the guard "
        f"used {work.guard_cpu_s:.1f} s of CPU time"
    )
    for name, written, size in (
        ("LTTng:", trace.lttng, trace.lttng_bytes),
        ("file: ", trace.file, trace.file_bytes),
    ):
        count = len(written.records)
        yield f"{name} {count:,} events, {size:,} bytes, {size / max(1, count):.1f} bytes an event"
    same = np.array_equal(trace.lttng.records, trace.file.records)
    yield f"both hold the same events: {'yes' if same else 'no'}"
    if trace.warnings:
        yield f"babeltrace2 says: {trace.warnings.splitlines()[-1]}"
    yield ""
    for event, count in trace.lttng.event_counts().items():
        yield f"  {event.name.lower():11} {count:>10,}"
    yield ""
    fates = trace.cells.counts()
    total = len(trace.cells)
    for fate in Fate:
        if fates[fate]:
            joined = "" if fate in JOINED else "  (does not join)"
            yield f"  {fates[fate]:>10,}  {fates[fate] / total:8.3%}  {MEANINGS[fate]}{joined}"
    yield ""
    if not fates[Fate.RELAYED]:
        yield f"no cell was relayed ({Event.FLUSH.name.lower()} events are missing)"
        return
    yield "RELAY cells, inbuf to kernel, ms:"
    cells = relayed([trace.cells], 0.0, END_S)
    for group in Group:
        members = cells.members(group)
        for stage in Stage if group is Group.ALL else (Stage.TOTAL,):
            s = summarise(cells.stages_ms[stage][members])
            yield (
                f"  {group.value:16} {stage.value:16} kept {s.count:>9,}  min {s.minimum_ms:.3f}  "
                f"1st Q. {s.quartile1_ms:.3f}  median {s.median_ms:.3f}  mean {s.mean_ms:.3f}  "
                f"3rd Q. {s.quartile3_ms:.3f}  max {s.maximum_ms:.3f}"
            )


def overhead(works: list[Work]) -> Iterator[str]:
    """Yield lines with the guard's CPU time per cell in microseconds, for each tracing method."""
    if not works:
        return
    yield ""
    yield "CPU time of the guard for each cell that reached a client, microseconds:"
    for tracing in OVERHEAD:
        values = [work.cpu_us_per_cell for work in works if work.tracing == tracing]
        listed = ", ".join(f"{value:.2f}" for value in values)
        yield f"  {tracing:6} {listed}  (median {float(np.median(values)):.2f})"
