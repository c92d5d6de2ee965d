"""The simulated networks, in a line for each level, for the top of a page."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.formats.study import Level, Study


def simulated(*studies: Study) -> list[str]:
    """Return scale and engine, then relays by role and clients by class of each level."""
    return list(dict.fromkeys(line for study in studies for line in _lines(study)))


def _lines(study: Study) -> Iterator[str]:
    engine = study.provenance.get("engine", {})
    name = " ".join(str(engine[key]) for key in ("name", "version") if engine.get(key))
    first = [f"scale {study.scale:g}"] if "scale" in study.asked else []
    first += [f"engine {name}"] if name else []
    if first:
        yield f"Simulated: {', '.join(first)}."
    for level in study.levels:
        hosts = _hosts(level)
        if hosts:
            yield f"{study.label(level)}: {hosts}."
        if not level.relays and study.shrunk:
            # Older studies do not contain the relays of a level.
            yield f"{study.label(level)}, reduced: {'; '.join(study.shrunk)}."


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
