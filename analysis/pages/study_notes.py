"""Sentences on a study: simulated networks, scope of the verdicts, and earlier interim analyses."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.formats.study import Level, Study
from analysis.judgement.judging import study_error_level
from analysis.judgement.verdicts import LEVEL


def simulated(*studies: Study) -> list[str]:
    """Return sentences on scale and engine, and on each level's relays and clients."""
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
            # Older studies do not contain the relays of a level: describe what the scale changed.
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


def scope_note(plan: Study) -> str:
    """Return the scope of the verdicts if the study has one network with repeats, else ""."""
    if len(plan.networks_run) != 1 or plan.repeats < 2:
        return ""
    if plan.scope == "one-network":
        return (
            f"verdicts are about what happens in this network (network {plan.networks_run[0]}), "
            f"over its {plan.repeats} repeats"
        )
    return (
        f"there is one network with {plan.repeats} repeats, and verdicts are about networks; with "
        "scope: one-network in the experiment's file they are about this network"
    )


def earlier_looks_note(plan: Study) -> str:
    """Return a note on earlier interim analyses and the resulting error rate; "" without any."""
    if plan.looks is None or not plan.looks.judging_plans:
        return ""
    past = [str(size) for looks in plan.looks.judging_plans for size in looks.sizes]
    level = 100 * study_error_level(plan)
    words = f"These runs were analysed before, with {', '.join(past)} networks."
    if level > 100 * LEVEL:
        return (
            f"{words} The first look spent the whole error rate of {100 * LEVEL:g}%; over all "
            f"looks it is {level:.2g}%."
        )
    return f"{words} The error rate of {100 * LEVEL:g}% holds over all looks."
