"""Format an estimate for people."""

from __future__ import annotations

from onionlab.engines.examination import format_bytes
from onionlab.runs.costs.estimate import Estimate


def cost_text(estimate: Estimate) -> str:
    """Return an estimate as one line of text."""
    if not estimate.missing:
        runs = "the run is" if estimate.runs == 1 else f"all {estimate.runs} runs are"
        return f"none: {runs} finished"
    existing = f"{estimate.runs - estimate.missing} of {estimate.runs} exist"
    if estimate.unknown:
        existing += f", perhaps {estimate.unknown} more"
    return (
        f"{estimate.missing} {'run' if estimate.missing == 1 else 'runs'} to make ({existing}), "
        f"about {_with_range(estimate.wall_s, estimate.error)} "
        f"with {estimate.concurrent} at a time on {' and '.join(estimate.engines)}; "
        f"{format_time(estimate.cpu_s)} of CPU time, "
        f"{format_bytes(estimate.memory_bytes * estimate.concurrent)} of memory, "
        f"{format_bytes(estimate.disk_bytes)} of disk"
    )


def table_rows(estimate: Estimate) -> list[tuple[str, str]]:
    """Return the estimate as a table of two columns."""
    existing = estimate.runs - estimate.missing
    rows = [("runs", f"{estimate.runs}, of which {existing} exist")]
    if estimate.unknown:
        text = f"perhaps {estimate.unknown} more, which is known when their programs are built"
        rows.append(("", text))
    if not estimate.missing:
        return rows
    error, jobs = estimate.error, estimate.concurrent
    memory = estimate.memory_bytes
    return [
        *rows,
        ("to make", f"{estimate.missing} on {' and '.join(estimate.engines)}"),
        ("CPU time", _with_range(estimate.cpu_s, error)),
        ("wall time", f"{_with_range(estimate.wall_s, error)}, {jobs} at a time"),
        ("memory", f"{format_bytes(memory)} a run, {format_bytes(memory * jobs)} together"),
        ("disk", format_bytes(estimate.disk_bytes)),
        ("from", " and ".join(estimate.sources)),
        ("error", f"CPU time within a factor of {error:.2g} in nine of ten experiments"),
    ]


def _with_range(seconds: float, error: float) -> str:
    low, high = format_time(seconds / error), format_time(seconds * error)
    return f"{format_time(seconds)} ({low} to {high})"


def format_time(seconds: float) -> str:
    """Format a time in the largest unit in which it is at least 2."""
    for unit, factor in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * factor:
            amount = seconds / factor
            return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"
    return f"{max(seconds, 1):.0f} s"
