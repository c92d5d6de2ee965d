"""Pairing of two sets of runs.

Levels (settings of the network) and variants are paired by name, and runs by their network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from analysis.comparison.run_sets import RunSet, SetRun
from analysis.errors import AnalysisError

MIN_PAIRS = 2
"""Minimum number of common networks for pairing imports, because a single pair has no spread."""

SAME_NETWORKS = (
    "both sides simulate the same networks, by name or by relay keys, and are therefore paired; "
    "UNPAIRED=1 compares them as independent samples"
)


@dataclass(frozen=True)
class Match:
    """A level and variant of each side that are compared, with their runs.

    Attributes:
        label: text that distinguishes the match from the comparison's other matches.
        runs_a, runs_b: seed -> runs, in order of repeats.
    """

    label: str
    level_a: str
    variant_a: str
    level_b: str
    variant_b: str
    runs_a: Mapping[int, Sequence[SetRun]]
    runs_b: Mapping[int, Sequence[SetRun]]

    @property
    def common_seeds(self) -> list[int]:
        """The seeds that both sides have."""
        return sorted(set(self.runs_a) & set(self.runs_b))

    @property
    def single_seeds(self) -> list[int]:
        """The seeds that only one side has."""
        return sorted(set(self.runs_a) ^ set(self.runs_b))

    def couples(self, *, paired: bool) -> Iterator[tuple[SetRun, SetRun]]:
        """Yield pairs of runs whose inputs are compared: by seed if ``paired``, or by position."""
        if paired:
            for seed in self.common_seeds:
                yield from zip(self.runs_a[seed], self.runs_b[seed], strict=False)
        else:
            yield from zip(chain(*self.runs_a.values()), chain(*self.runs_b.values()), strict=False)


def find_matches(a: RunSet, b: RunSet) -> list[Match]:
    """Return the levels and variants with runs on both sides.

    Levels and variants are matched by name. If each side has only one level, or only one variant,
    their names may differ.

    Raises:
        AnalysisError: the names do not match, or no level and variant has runs on both sides.
    """
    levels = _matched_names("levels", a, b)
    variants = _matched_names("variants", a, b)
    matches = []
    for level_a, level_b in levels:
        for variant_a, variant_b in variants:
            runs_a, runs_b = a.runs_of(level_a, variant_a), b.runs_of(level_b, variant_b)
            if runs_a and runs_b:
                parts = [level_a] if len(levels) > 1 else []
                parts += [variant_a] if len(variants) > 1 else []
                label = ", ".join(parts) or level_a
                matches.append(Match(label, level_a, variant_a, level_b, variant_b, runs_a, runs_b))
    if not matches:
        raise AnalysisError(f"{a.name} and {b.name} have no level and variant in common")
    return matches


def _matched_names(noun: str, a: RunSet, b: RunSet) -> list[tuple[str, str]]:
    names_a, names_b = (getattr(side, noun) for side in (a, b))
    if len(names_a) == len(names_b) == 1:
        return [(names_a[0], names_b[0])]
    common = [name for name in names_a if name in names_b]
    if not common or len(names_a) == 1 or len(names_b) == 1:
        raise AnalysisError(
            f"{a.name} and {b.name} do not match in their {noun}: "
            f"{', '.join(names_a)} / {', '.join(names_b)}",
            "name one variant on both sides, NAME:VARIANT"
            if noun == "variants"
            else "compare runs of the same experiment",
        )
    return [(name, name) for name in common]


def pair_imports(a: RunSet, b: RunSet) -> tuple[RunSet, RunSet, str]:
    """Pair two imports: give the same network the same seed on both sides.

    An import has the results of another program; its seeds only number its simulations. The imports
    are paired only if every network of the smaller side is also on the other side, at least
    ``MIN_PAIRS`` networks are common, and no network occurs twice on a side.

    Returns:
        The imports, unchanged if they are not paired, and a note that says whether they are paired.
        The note is "" if there is no common network, or if a side is not an import.
    """
    networks = [Counter(run.network for run in side.runs) for side in (a, b)]
    common = [run.network for run in a.runs if run.network and run.network in networks[1]]
    if a.paired or b.paired or not common:
        return a, b, ""
    repeated = sorted({name for side in networks for name, count in side.items() if count > 1})
    smaller = min(len(a.runs), len(b.runs))
    if repeated:
        return a, b, f"not paired: {repeated[0]} occurs more than once"
    if len(common) < max(smaller, MIN_PAIRS):
        where = f"{len(common)} of {smaller} networks of the smaller side are on the other side"
        return a, b, f"not paired: only {where}"
    numbers = {network: number for number, network in enumerate(common, 1)}
    # The offsets give networks of one side alone other seeds than those of the other side.
    last_a, last_b = len(a.runs), len(a.runs) + len(b.runs)
    return _renumber(a, numbers, last_a), _renumber(b, numbers, last_b), SAME_NETWORKS


def _renumber(side: RunSet, numbers: Mapping[str, int], last: int) -> RunSet:
    """Return a set with the seeds ``numbers`` (by network), or above ``last``, marked as paired."""
    seeds = {
        run.seed: numbers.get(run.network, last + place) for place, run in enumerate(side.runs, 1)
    }
    return side.model_copy(
        update={
            "paired": True,
            "runs": tuple(run.model_copy(update={"seed": seeds[run.seed]}) for run in side.runs),
            "values": tuple(v.model_copy(update={"seed": seeds[v.seed]}) for v in side.values),
        }
    )


def copies_note(a: RunSet, b: RunSet) -> str:
    """Return a warning if simulations of two imports have identical records, or else ""."""
    known = {run.records.get("import") for run in a.runs} - {None, ""}
    same = [run.run_id for run in b.runs if run.records.get("import") in known]
    if a.paired or b.paired or not same:
        return ""
    return (
        f"warning: {len(same)} simulations of {b.name} are byte-identical to simulations of "
        f"{a.name}, and not independent replicates: {', '.join(same)}"
    )
