"""Select the hosts that run the variant, and the relays that write a cell trace.

A cell trace is a file in which a relay records when each cell passes through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.formats.files import TRACE_PLAN
from analysis.formats.run_files import TracedHost, TracePlan, written
from onionlab.engines.base import EPOCH_UNIX_S
from onionlab.errors import UserError
from onionlab.experiment.settings import Deployment, Traced
from onionlab.network.draws import draw_order
from onionlab.network.layout import RELAY_ROLES

EXITS = ("exit", "exitguard")


def select_share(ranked: Sequence[str], fraction: float, key: str, what: str) -> Sequence[str]:
    """Return the first hosts of a ranking.

    fraction: the share of the hosts to return. The number of hosts is rounded to a whole number.
    key: the key that sets the fraction in the experiment's file; what: the kind of hosts, such as
    "relays"; both for messages. Raises UserError if a positive fraction selects no host, because
    such runs would be identical to runs with the fraction 0.
    """
    count = round(fraction * len(ranked))
    if fraction and not count:
        raise UserError(
            f"{key}: {fraction:.3g} of {len(ranked)} {what} is less than one",
            "increase the share or the network's size, or use 0 for none",
        )
    return ranked[:count]


DEPLOYABLE_ROLES = {
    "relays": RELAY_ROLES,
    "exits": EXITS,
    "clients": ("client", "markov-client", "perf-client"),
}


def deployed_hosts(deployment: Deployment, roles: Mapping[str, str], seed: int) -> set[str]:
    """Return the names of the hosts that run the variant. roles: host -> its role.

    The ranking of the hosts depends on the seed but not on the fraction, so the hosts of a smaller
    fraction also belong to a larger one. Raises UserError if a positive fraction selects no host.
    """
    if deployment.where == "all":
        return set(roles)
    wanted = DEPLOYABLE_ROLES[deployment.where]
    ranked = draw_order([n for n, role in roles.items() if role in wanted], seed, "deployment")
    return set(select_share(ranked, deployment.fraction, "tor.deployment", deployment.where))


TRACE_SERIES = "cell-trace"
"""The series of patches that makes Tor able to write a cell trace."""

TRACE_FILE = "cells.stdtrace"
"""The name of a trace in a host's folder. The embedded engine keeps only files `*.std*`."""

CELL_TRACE_IN_USE = "Cell trace in use: file."
"""The line that Tor logs at notice level when it has written its first event."""


def traced_series(series: str | None) -> str:
    """Return the name of the patch series with which a traced relay is built.

    series: the name of the patch series of the relay's variant; None for unpatched Tor.
    """
    return TRACE_SERIES if series is None else f"{series}+{TRACE_SERIES}"


def traced_hosts(trace: Traced, relays: Mapping[str, str], seed: int) -> frozenset[str]:
    """Return the names of the traced relays.

    relays: name -> role of all relays except authorities, in the network's order. The relays of a
    smaller fraction also belong to a larger fraction, as with `tor.deployment`. Raises UserError if
    a host that ``trace`` names is not such a relay, or if a positive fraction selects no relay.
    """
    if trace.where == "none":
        return frozenset()
    if trace.where == "roles":
        return frozenset(name for name, role in relays.items() if role in trace.names)
    if trace.where == "hosts":
        for name in trace.names:
            if name not in relays:
                raise UserError(
                    f"tor.trace: unknown relay {name!r}",
                    f"the network's relays are: {', '.join(relays)}",
                )
        return frozenset(trace.names)
    ranked = draw_order(list(relays), seed, "trace")
    return frozenset(select_share(ranked, trace.fraction, "tor.trace", "relays"))


def trace_files(traced: frozenset[str], hosts: Mapping[str, TracedHost]) -> dict[str, bytes]:
    """Return the file from which the analysis reads which relays have traces, by its path.

    hosts: all hosts of the network, by name. The mapping is empty if no relay has a trace.
    """
    if not traced:
        return {}
    plan = TracePlan(
        epoch_unix_s=EPOCH_UNIX_S, file=TRACE_FILE, traced=tuple(sorted(traced)), hosts=dict(hosts)
    )
    return {TRACE_PLAN: written(plan)}


def trace_lines(traced: bool) -> list[str]:
    """Return the lines of a host's torrc that enable the trace; none if the host has no trace."""
    return [f"CellTraceFile {TRACE_FILE}"] if traced else []
