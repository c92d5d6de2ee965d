"""Which relays write a cell trace, with which build, and where (docs/explanation/celltrace.md)."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.formats.run_files import TracedHost, TracePlan
from onionlab.engines.base import EPOCH_UNIX_S
from onionlab.errors import UserError
from onionlab.experiment.values import Traced
from onionlab.network.draws import draw_order
from onionlab.rundir.shares import first_of

TRACE_SERIES = "cell-trace"
"""The patch series that adds the trace to a build."""

TRACE_FILE = "cells.stdtrace"
"""In a host's folder. The embedded engine's guest carries out what is named `*.std*`."""

CELL_TRACE_IN_USE = "Cell trace in use: file."
"""What Tor logs at notice level when it has written its first event."""


def traced_series(series: str | None) -> str:
    """Return the series of a traced relay whose variant has this series."""
    return TRACE_SERIES if series is None else f"{series}+{TRACE_SERIES}"


def traced_hosts(trace: Traced, relays: Mapping[str, str], seed: int) -> frozenset[str]:
    """Return the names of the relays that are traced.

    relays: of the network without its authorities, name -> role, in the network's order. Of a
    fraction, the relays of a smaller one are a subset of those of a larger one, as with
    `tor.deployment`. Raises UserError for a host that is no relay of this network, and for a share
    of the relays that is less than one.
    """
    if trace.where == "none":
        return frozenset()
    if trace.where == "roles":
        return frozenset(name for name, role in relays.items() if role in trace.names)
    if trace.where == "hosts":
        for name in trace.names:
            if name not in relays:
                raise UserError(
                    f"tor.trace: there is no relay {name!r} in this network",
                    f"its relays are: {', '.join(relays)}",
                )
        return frozenset(trace.names)
    ranked = draw_order(list(relays), seed, "trace")
    return frozenset(first_of(ranked, trace.fraction, "tor.trace", "relays"))


def trace_plan(traced: frozenset[str], hosts: Mapping[str, TracedHost]) -> TracePlan | None:
    """Return what the analysis needs to know of the traces; None without any.

    hosts: all of the network, by name.
    """
    if not traced:
        return None
    return TracePlan(
        epoch_unix_s=EPOCH_UNIX_S,
        file=TRACE_FILE,
        traced=tuple(sorted(traced)),
        hosts=dict(hosts),
    )


def trace_lines(traced: bool) -> list[str]:
    """Return what stands in the torrc of a host, traced or not."""
    return [f"CellTraceFile {TRACE_FILE}"] if traced else []
