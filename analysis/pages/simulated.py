"""What was really simulated, in a line for each level: for the top of a page."""

from __future__ import annotations

from analysis.formats.study import Level, Study


def simulated(study: Study) -> list[str]:
    """Scale and engine, then relays by role and clients by class of each level."""
    scale = study.asked.get("scale")
    engine = study.provenance.get("engine", {})
    name = " ".join(str(engine[key]) for key in ("name", "version") if engine.get(key))
    first = [f"scale {scale:g}"] if isinstance(scale, int | float) else []
    first += [f"engine {name}"] if name else []
    places = [(level.label, _hosts(level)) for level in study.levels]
    known = [(label, hosts) for label, hosts in places if hosts]
    if len(study.levels) == 1:
        parts = [", ".join(first), *(hosts for _, hosts in known)]
        return [f"Simulated: {'; '.join(filter(None, parts))}."] if any(parts) else []
    lines = [f"Simulated: {', '.join(first)}."] if first else []
    return lines + [f"{label}: {hosts}." for label, hosts in known]


def _hosts(level: Level) -> str:
    relays = [f"{count} {role}" for role, count in level.relays.items()]
    clients = [
        f"{load.count} {name}" for name, load in level.classes.items() if load.count is not None
    ]
    parts = []
    if relays:
        total = sum(level.relays.values())
        parts.append(f"{total} relay{'' if total == 1 else 's'} ({', '.join(relays)})")
    if clients:
        parts.append(f"clients: {', '.join(clients)}")
    return "; ".join(parts)
