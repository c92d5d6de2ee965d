"""SCALE: the same experiment on a smaller or larger network."""

from __future__ import annotations

import math
from fractions import Fraction

from onionlab.errors import UserError
from onionlab.experiment.schema import NetworkSettings, Settings, TrafficClass
from onionlab.yamlfile.units import show

MAX_SCALE = 100.0


def checked_scale(scale: float) -> float:
    """A scale that can be had. Raises UserError."""
    if not (math.isfinite(scale) and 0 < scale <= MAX_SCALE):
        raise UserError(
            f"SCALE: expected a number more than 0 and at most {MAX_SCALE:g}, such as 0.1, "
            f"got {show(scale)}"
        )
    return float(scale)


def scale_settings(settings: Settings, scale: float) -> Settings:
    """Settings with all counts but the authorities' multiplied; see Experiment.with_overrides."""
    exact = Fraction(repr(float(scale)))

    def scaled(count: int) -> int:
        # Half up, and not to even: 5 middles at 0.1 must not depend on 15 becoming 2 and 25 too.
        return max(1, math.floor(count * exact + Fraction(1, 2))) if count else 0

    network = settings.network
    relays = {
        role: entry.model_copy(update={"count": scaled(entry.count), "full_count": entry.count})
        for role, entry in network.relays.items()
    }
    servers = network.servers.model_copy(update={"count": scaled(network.servers.count)})
    smaller: NetworkSettings = network.model_copy(
        update={
            "relays": network.relays.model_copy(update=relays),
            "servers": servers,
            "perf_clients": scaled(network.perf_clients),
            "onion_services": scaled(network.onion_services),
            "scale": scale,
        }
    )
    traffic: dict[str, TrafficClass] = {
        name: one.model_copy(update={"count": scaled(one.count), "full_count": one.count})
        for name, one in settings.traffic.items()
    }
    return settings.model_copy(update={"network": smaller, "traffic": traffic})


def changes(full: Settings, scaled: Settings) -> list[str]:
    """What differs between the full size and a scaled one, a line each."""
    scale = scaled.network.scale
    lines = []

    def counted(what: str, before: int, after: int, note: str = "") -> None:
        if before != after:
            lines.append(f"{what} {before} -> {after}{note}")

    for name in sorted(full.traffic):
        counted(f"{name} clients", full.traffic[name].count, scaled.traffic[name].count)
    counted("perf clients", full.network.perf_clients, scaled.network.perf_clients)
    counted("servers", full.network.servers.count, scaled.network.servers.count)
    counted("onion services", full.network.onion_services, scaled.network.onion_services)
    entries = dict(scaled.network.relays.items())
    for role, entry in full.network.relays.items():
        if entry.count:
            each = scale * entry.count / entries[role].count
            note = "" if math.isclose(each, 1.0) else f", each with {each:.3g} times the capacity"
            note = f"{note} (in total {scale:g} of the full size)"
            counted(f"{role} relays", entry.count, entries[role].count, note)
            if entry.count == entries[role].count and note.startswith(","):
                lines.append(f"{role} relays stay {entry.count}{note}")
    lines.append(f"authorities stay {full.network.authorities}: they carry no load")
    return lines
