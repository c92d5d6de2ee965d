"""Reduce a study to some of its networks, and merge the parts again.

A study (study.json) describes an experiment and its runs. A pack, a file with runs, contains the
studies of its runs, so several packs can publish parts of one study.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from analysis.formats.study import Study, load_study, write_study
from onionlab.errors import UserError
from onionlab.runs.earlier_looks import looks_together, replicates_in


def part_of_study(study: Study, seeds: Iterable[int]) -> Study:
    """Return a copy of ``study`` that has only the networks with these seeds, and their runs.

    `add_study` can merge such parts.
    """
    kept = sorted(set(seeds) & set(study.asked["seeds"]))
    return study.model_copy(
        update={
            "asked": {**study.asked, "seeds": kept},
            "provenance": {
                **study.provenance,
                "runs": [run for run in study.provenance.get("runs", []) if run["seed"] in kept],
            },
            "runs": tuple(run for run in study.runs if run.seed in kept),
            "networks": {
                level: {seed: facts for seed, facts in networks.items() if seed in kept}
                for level, networks in study.networks.items()
            },
        }
    )


def add_study(target: Path, source: Path, pack: Path) -> None:
    """Add the networks and runs of the study.json ``source`` to the study.json ``target``.

    If ``target`` is missing, ``source`` is moved to this path. pack: the pack with ``source``, for
    messages. Raises UserError if the two studies differ in other facts than their networks, the
    machine, and the compiler and libraries with which Tor was built.
    """
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
        return
    one, other = load_study(target), load_study(source)
    same_levels = len(one.levels) == len(other.levels) and all(
        level.same_as(other_level)
        for level, other_level in zip(one.levels, other.levels, strict=True)
    )
    if not same_levels or _set_up(one) != _set_up(other):
        raise UserError(
            f"{target.stem} in {pack} differs from the experiment of that name in an earlier file",
            "only the networks may differ, and not levels, variants, engine or Tor's source, for "
            "example",
        )
    known = {run.run_id for run in one.runs}
    runs = (*one.runs, *(run for run in other.runs if run.run_id not in known))
    used = list(one.provenance.get("runs", []))
    described = {run["run_id"] for run in used}
    used += [r for r in other.provenance.get("runs", []) if r["run_id"] not in described]
    programs = [*one.provenance.get("tor", [])]
    programs += [program for program in other.provenance.get("tor", []) if program not in programs]
    provenance = {**one.provenance, "runs": used} | ({"tor": programs} if programs else {})
    merged = {
        "asked": {**one.asked, "seeds": sorted({*one.asked["seeds"], *other.asked["seeds"]})},
        "looks": looks_together([one.looks, other.looks], replicates_in(runs)),
        "runs": runs,
        "networks": {
            level: {**one.networks.get(level, {}), **other.networks.get(level, {})}
            for level in {**one.networks, **other.networks}
        },
        "provenance": provenance,
    }
    write_study(target, one.model_copy(update=merged))


def _set_up(study: Study) -> Any:
    """Return the fields that must be equal in two parts of a study.

    Levels are left out, because `add_study` compares them with `Level.same_as`.
    """
    # Looks may differ: one part may have been analysed before the other part existed.
    own: dict[str, Any] = dict.fromkeys(("runs", "networks", "levels", "looks"), True)
    own |= {"asked": {"seeds"}, "provenance": {"machine", "runs", "tor"}}
    sources = []
    for program in study.provenance.get("tor", []):
        # Two machines rarely have the same compiler and libraries. A study that was merged before
        # has a program once for each of its builds.
        source = {key: value for key, value in program["source"].items() if key != "toolchain"}
        if (of_program := {**program, "sha256": None, "source": source}) not in sources:
            sources.append(of_program)
    return study.model_dump(exclude=own), sources
