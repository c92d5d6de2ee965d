"""An experiment with its resolved settings, and the options NETWORKS, REPEATS and SCALE."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from onionlab.errors import UserError
from onionlab.experiment.checks import find_errors
from onionlab.experiment.header import MAX_REPEATS, Figure, parse_networks
from onionlab.experiment.settings import Settings
from onionlab.experiment.tor_checks import KnownNames
from onionlab.yamlfile.units import show

MAX_SCALE = 100.0


@dataclass(frozen=True)
class Level:
    """One of the conditions under which an experiment compares its variants.

    label: the level's name in figures. settings: all settings at this level, an instance of the
    subclass of `RunSettings` for the experiment's kind.
    """

    label: str
    settings: Any


@dataclass(frozen=True)
class Experiment:
    """An experiment with its resolved settings: all that is needed to list its runs.

    Attributes:
        name: The file's name without its ending.
        header: The `Header` of its file; None if `load_resolved_experiment` made the experiment.
        kind: The value of the key `kind`; None if the file does not have this key.
        variants: Names of the variants, in the order of figures; the same in all levels.
        baseline: The variant with which the other variants are compared.
        seeds: The seeds of the networks; every variant runs on each network.
        repeats: The number of runs of each variant on each network.
        levels: Levels by name, in the file's order; at least one.
        figures: Figures with their levels and titles.
        scale: SCALE, the factor of the counts of hosts; 1.0 is the size in the file.
        files: The files that were read, the experiment's own first.
        warnings: Settings that are allowed but probably unintended: one line each, with file and
            line number.
    """

    name: str
    kind: str | None
    variants: tuple[str, ...]
    baseline: str
    seeds: tuple[int, ...]
    repeats: int
    levels: dict[str, Level]
    header: Any = None
    figures: tuple[Figure[Any], ...] = ()
    scale: float = 1.0
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    _full_size: dict[str, Level] = field(default_factory=dict, repr=False)
    _known: KnownNames = field(default_factory=KnownNames, repr=False)

    @property
    def asked(self) -> dict[str, object]:
        """Return what was requested (experiment, scale, networks, repeats), as plain JSON data."""
        asked = {"experiment": self.name, "scale": self.scale, "seeds": list(self.seeds)}
        # Packs of earlier versions do not have the key `repeats`. Omit it if there is only one
        # repeat, so that packs of this version can be merged with them.
        return asked | ({"repeats": self.repeats} if self.repeats > 1 else {})

    @property
    def replicates(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs (network, repeat) for which every variant runs, grouped by network."""
        return tuple((seed, repeat) for seed in self.seeds for repeat in range(1, self.repeats + 1))

    @property
    def shrunk(self) -> list[str]:
        """Return lines that say what SCALE changes and what it keeps, or [] at full size."""
        if self.scale == 1.0:
            return []
        by_level = {
            name: changes(self._full_size[name].settings, level.settings)
            for name, level in self.levels.items()
        }
        first, *others = by_level.values()
        shared = [line for line in first if all(line in lines for lines in others)]
        return shared + [
            f"{name}: {line}"
            for name, lines in by_level.items()
            for line in lines
            if line not in shared
        ]

    def with_overrides(
        self,
        scale: float | None = None,
        seeds: int | Sequence[int] | None = None,
        repeats: int | None = None,
    ) -> Experiment:
        """Return the experiment with another scale, seeds or repeats; None keeps the present value.

        The parameters are the options SCALE, NETWORKS and REPEATS. SCALE multiplies the counts of
        clients, servers, onion services and relays of each role. Results are rounded half up, and
        are at least 1 unless the count is 0. The number of authorities stays the same, because they
        carry no load. A role's total capacity is `scale` times the total at full size
        (:meth:`NetworkSettings.capacity_total_factor`).

        Raises:
            UserError: a value is out of range; the experiment has no counts to scale; the network
                is impossible at this scale; or the experiment's scope does not fit these numbers of
                seeds and repeats.
        """
        changed = self
        if scale is not None:
            changed = changed._scaled(scale)
        if seeds is not None:
            changed = replace(changed, seeds=checked_seeds(seeds))
        if repeats is not None:
            if not 1 <= repeats <= MAX_REPEATS:
                expected = f"a whole number from 1 to {MAX_REPEATS}"
                raise UserError(f"REPEATS: expected {expected}, got {show(repeats)}")
            changed = replace(changed, repeats=repeats)
        wrong = scope_problem(self.header.scope, changed.seeds, changed.repeats)
        if wrong:
            raise UserError(f"{self.name}: scope: {wrong}", "set NETWORKS=1 and REPEATS")
        return changed

    def require_variants(self, names: Sequence[str]) -> None:
        """Raise UserError if the settings are impossible with these variants."""
        settings = [level.settings.with_variants(names) for level in self.levels.values()]
        self._require_possible(f"{self.name} with {', '.join(names)}", settings)

    def _require_possible(self, what: str, settings: Iterable[Any]) -> None:
        lines = {
            f"{what}: {'.'.join(location)}: {message}": None
            for one in settings
            for location, message in find_errors(one, self._known)
        }
        if lines:
            raise UserError("\n".join(lines))

    def _scaled(self, scale: float) -> Experiment:
        if not (math.isfinite(scale) and 0 < scale <= MAX_SCALE):
            raise UserError(
                f"SCALE: expected a number more than 0 and at most {MAX_SCALE:g}, such as 0.1, "
                f"got {show(scale)}"
            )
        scale = float(scale)
        if self.kind is not None:
            if scale == 1:
                return self
            raise UserError(
                f"SCALE: an experiment of kind {self.kind} has no counts to scale",
                "leave SCALE out",
            )
        levels = {
            name: Level(level.label, scale_settings(level.settings, scale))
            for name, level in self._full_size.items()
        }
        settings = [level.settings for level in levels.values()]
        self._require_possible(f"{self.name} at SCALE={scale:g}", settings)
        return replace(self, scale=scale, levels=levels)


def parse_seeds(text: str) -> int | list[int]:
    """Parse NETWORKS of a command line: a number of networks ("3") or a list ("1,2,7").

    Raises:
        UserError: the text is neither, a number is out of range, or a network is listed twice.
    """
    if re.fullmatch(r"[0-9]{1,10}(, ?[0-9]{1,10})*,?", text.strip(), re.ASCII) is None:
        raise UserError(
            f"NETWORKS: expected a number of networks or a list such as 1,2,7, got {show(text)}",
            "`make experiment` takes NETWORKS=auto too" if text == "auto" else None,
        )
    numbers = [int(part) for part in text.split(",") if part.strip()]
    seeds = numbers if "," in text else numbers[0]
    checked_seeds(seeds)
    return seeds


def checked_seeds(seeds: object) -> tuple[int, ...]:
    """Return the networks 1 to n for a number n, or the networks in a list.

    Raises UserError for any other value.
    """
    try:
        return parse_networks(seeds)
    except ValueError as error:
        raise UserError(f"NETWORKS: {error}") from None


def scope_problem(scope: str, seeds: tuple[int, ...], repeats: int) -> str | None:
    """Return why these networks and repeats do not allow verdicts of this scope, or None."""
    if scope == "networks" or (len(seeds) == 1 and repeats > 1):
        return None
    return (
        f"one-network needs exactly one network and at least two repeats, and there are "
        f"{len(seeds)} and {repeats}"
    )


def scale_settings(settings: Settings, scale: float) -> Settings:
    """Return settings with scaled counts, by the rules of `Experiment.with_overrides`."""
    exact = Fraction(repr(float(scale)))

    def scaled(count: int) -> int:
        # Round half up, not to even: at scale 0.1, 15 and 25 relays must become 2 and 3.
        return max(1, math.floor(count * exact + Fraction(1, 2))) if count else 0

    network = settings.network
    relays = {
        role: entry.model_copy(update={"count": scaled(entry.count), "full_count": entry.count})
        for role, entry in network.relays.items()
    }
    servers = network.servers.model_copy(update={"count": scaled(network.servers.count)})
    smaller = network.model_copy(
        update={
            "relays": network.relays.model_copy(update=relays),
            "servers": servers,
            "perf_clients": scaled(network.perf_clients),
            "onion_services": scaled(network.onion_services),
            "scale": scale,
        }
    )
    traffic = {
        name: one.model_copy(update={"count": scaled(one.count), "full_count": one.count})
        for name, one in settings.traffic.items()
    }
    return settings.model_copy(update={"network": smaller, "traffic": traffic})


def changes(full: Settings, scaled: Settings) -> list[str]:
    """Return lines that say which counts and capacities SCALE changes, and which it keeps."""
    before, after = full.network, scaled.network
    counts = {
        **{f"{n} clients": (c.full_count, c.count) for n, c in sorted(scaled.traffic.items())},
        "perf clients": (before.perf_clients, after.perf_clients),
        "servers": (before.servers.count, after.servers.count),
        "onion services": (before.onion_services, after.onion_services),
    }
    lines = [f"{what} {old} -> {new}" for what, (old, new) in counts.items() if old != new]
    for role, entry in after.relays.items():
        if not entry.count:
            continue
        each = after.scale * entry.full_count / entry.count
        capacity = "" if math.isclose(each, 1.0) else f", each with {each:.3g} times the capacity"
        is_kept = entry.count == entry.full_count
        if capacity or not is_kept:
            count = f"stay {entry.count}" if is_kept else f"{entry.full_count} -> {entry.count}"
            lines.append(
                f"{role} relays {count}{capacity} (in total {after.scale:g} of the full size)"
            )
    return [*lines, f"authorities stay {after.authorities}: they carry no load"]
