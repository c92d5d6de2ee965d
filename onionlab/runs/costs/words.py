"""What an estimate says to people."""

from __future__ import annotations

from collections.abc import Sequence

from onionlab.runs.costs.cheaper import Way
from onionlab.runs.costs.estimate import Estimate
from onionlab.runs.costs.model import Range

NOT_MEASURED = "this machine could not be measured: times are those of the machine of the model"


def one_line(estimate: Estimate) -> str:
    """The cost in one line, as commands begin with it."""
    return f"cost: {cost_text(estimate)}"


def cost_text(estimate: Estimate) -> str:
    """The cost in one line."""
    if not estimate.missing:
        return (
            f"none: {'the run is' if estimate.runs == 1 else f'all {estimate.runs} runs are'} there"
        )
    there = f"{estimate.there} of {estimate.runs} there"
    if estimate.unknown:
        there += f", {estimate.unknown} more may be"
    return (
        f"{_runs(estimate.missing)} to make ({there}), "
        f"about {time_text(estimate.wall_s.middle)} "
        f"({span_text(estimate.wall_s)}) with {estimate.side_by_side} at a time on "
        f"{' and '.join(estimate.engines)}; {time_text(estimate.cpu_s.middle)} of CPU time, "
        f"{bytes_text(estimate.memory_together_bytes.middle)} of memory, "
        f"{bytes_text(estimate.disk_bytes.middle)} of disk"
    )


def cheaper_line(ways: Sequence[tuple[Way, Estimate]]) -> str | None:
    """What would be cheaper, in one line; None where there is nothing to say."""
    if not ways:
        return None
    parts = [
        f"{way.what} ({'at least ' if way.at_least else ''}{time_text(estimate.wall_s.middle)})"
        for way, estimate in ways
    ]
    return f"cheaper: {'; '.join(parts)}"


def way_rows(ways: Sequence[tuple[Way, Estimate]]) -> list[tuple[str, str]]:
    """What would be cheaper, and its time by the clock."""
    return [
        (
            way.what,
            f"{'at least ' if way.at_least else ''}{time_text(estimate.wall_s.middle)} "
            f"({_runs(estimate.missing)})",
        )
        for way, estimate in ways
    ]


def table_rows(estimate: Estimate) -> list[tuple[str, str]]:
    """What is estimated, and how much."""
    rows = [("runs", f"{estimate.runs}, of which {estimate.there} are there")]
    if estimate.assumed:
        rows.append(("", f"{estimate.assumed} of them looked at by name and size alone"))
    if estimate.unknown:
        rows.append(
            ("", f"{estimate.unknown} more may be: that is known when their programs are built")
        )
    if not estimate.missing:
        return rows
    rows += [
        ("to make", f"{estimate.missing} on {' and '.join(estimate.engines)}"),
        ("CPU time", _with_span(estimate.cpu_s)),
        ("wall time", f"{_with_span(estimate.wall_s)}, {estimate.side_by_side} at a time"),
        (
            "memory",
            f"{_with_span_of_bytes(estimate.memory_bytes)} a run, "
            f"{bytes_text(estimate.memory_together_bytes.middle)} together",
        ),
        ("disk", _with_span_of_bytes(estimate.disk_bytes)),
        ("from", "; ".join(estimate.sources)),
        ("machine", _machine(estimate)),
    ]
    return rows


def _machine(estimate: Estimate) -> str:
    found = estimate.calibration
    if found is None:
        return NOT_MEASURED
    return (
        f"{found.switch_us:.1f} us a switch of processes, {found.call_us:.2f} us a system call, "
        f"{found.aes_ns_per_byte:.2f} ns a byte of AES"
    )


def _with_span(seconds: Range) -> str:
    return f"{time_text(seconds.middle)} ({span_text(seconds)})"


def _with_span_of_bytes(size: Range) -> str:
    return f"{bytes_text(size.middle)} ({bytes_text(size.low)} to {bytes_text(size.high)})"


def span_text(seconds: Range) -> str:
    """Both ends of a range of times."""
    return f"{time_text(seconds.low)} to {time_text(seconds.high)}"


def time_text(seconds: float) -> str:
    """A time in the largest unit of which there are two."""
    for unit, factor in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * factor:
            amount = seconds / factor
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{max(seconds, 1):.0f} s"


def bytes_text(size: float) -> str:
    """A size in the largest unit of which there is one."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            amount = size / factor
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{max(size / 2**10, 1):.0f} KiB"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
