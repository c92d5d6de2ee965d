"""The studies of packs: cut down to some networks, and several put together."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from analysis.formats.study import Study, load_study, write_study
from onionlab.errors import UserError
from onionlab.runs.earlier_looks import looks_together, replicates_in


def part_of_study(study: Study, seeds: Iterable[int]) -> Study:
    """Return the study of these networks alone, which `opened_together` can merge with others."""
    kept = sorted(set(seeds) & set(study.asked["seeds"]))
    used = [run for run in study.provenance.get("runs", []) if run["seed"] in kept]
    return study.model_copy(
        update={
            "asked": {**study.asked, "seeds": kept},
            "provenance": {**study.provenance, "runs": used},
            "runs": tuple(run for run in study.runs if run.seed in kept),
            "networks": {
                level: {seed: facts for seed, facts in of_seed.items() if seed in kept}
                for level, of_seed in study.networks.items()
            },
        }
    )


def add_study(target: Path, study: Path, file: Path) -> None:
    """Add the networks and runs of a study to those of ``target``.

    Args:
        target: a study.json, which may be missing.
        study: another one.
        file: where that is from.

    Raises:
        UserError: the two differ in more than their networks and the machine.
    """
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        study.rename(target)
        return
    one, other = load_study(target), load_study(study)
    same_levels = len(one.levels) == len(other.levels) and all(
        level.same_as(there) for level, there in zip(one.levels, other.levels, strict=True)
    )
    if not same_levels or _set_up(one) != _set_up(other):
        raise UserError(
            f"{target.stem} in {file} is not the experiment of that name in the files before",
            "levels, variants, engine, Tor and everything else but networks have to be the same",
        )
    there = {run.run_id for run in one.runs}
    used = list(one.provenance.get("runs", []))
    described = {run["run_id"] for run in used}
    used += [r for r in other.provenance.get("runs", []) if r["run_id"] not in described]
    seeds = sorted({*one.asked["seeds"], *other.asked["seeds"]})
    runs = (*one.runs, *(run for run in other.runs if run.run_id not in there))
    together = {
        "asked": {**one.asked, "seeds": seeds},
        "looks": looks_together([one.looks, other.looks], replicates_in(runs)),
        "runs": runs,
        "networks": {
            level: {**one.networks.get(level, {}), **other.networks.get(level, {})}
            for level in {**one.networks, **other.networks}
        },
        "provenance": {**one.provenance, "runs": used},
    }
    write_study(target, one.model_copy(update=together))


def _set_up(study: Study) -> Study:
    """All of a study but its levels that two parts of it have in common."""
    return study.model_copy(
        update={
            "asked": {**study.asked, "seeds": None},
            "provenance": {**study.provenance, "machine": None, "runs": None},
            "runs": (),
            "networks": {},
            "levels": (),
            # Each part's own: where its seeds were looked at before they were all there.
            "looks": None,
        }
    )
