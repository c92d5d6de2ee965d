"""An experiment as it was loaded, ready to be planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.formats.study import Scope
from onionlab.errors import UserError
from onionlab.experiment.checks import Finding, KnownNames, impossible
from onionlab.experiment.file_kinds import FILE_KINDS, TOR_KIND
from onionlab.experiment.peers import PeersSettings
from onionlab.experiment.scaling import changes, checked_scale, scale_settings
from onionlab.experiment.schema import EndpointEntry, Figure, PublishedCellTimes
from onionlab.experiment.seeds import checked_repeats, checked_seeds, scope_problem


@dataclass(frozen=True)
class Level:
    """One level of an experiment. label: what figures call it; settings: fully resolved.

    The settings are of the experiment's kind: `Settings` or `PeersSettings`.
    """

    label: str
    settings: Any


@dataclass(frozen=True)
class Experiment:
    """An experiment, ready to be planned.

    Attributes:
        name: The file's name without its ending.
        title: One line.
        description: What it asks, and why.
        paper: The section or figures that it repeats, or None.
        variants: Names, in the order of figures; the same in all levels.
        baseline: The variant that the others are compared with.
        seeds: The networks; every variant runs on each of them.
        repeats: Runs of each variant on each network.
        scope: What verdicts are about: "networks", or "one-network".
        levels: By name, in the file's order; at least one.
        figures: Each with its level and title filled in.
        margins: What counts as the same, for metrics where the file says so.
        endpoints: What variants are judged by, in order; none: the usual.
        published_cell_times: What others measured of cells, or None.
        public_tor: File with measurements of the public Tor, relative to the checkout, or None.
        scale: SCALE, 1.0 for the network as the file has it.
        files: The files read, the experiment's own first.
        warnings: One line each, with file and line: allowed, but hardly meant.
    """

    name: str
    title: str
    description: str
    paper: str | None
    variants: tuple[str, ...]
    baseline: str
    seeds: tuple[int, ...]
    repeats: int
    scope: Scope
    levels: dict[str, Level]
    figures: tuple[Figure[Any], ...]
    margins: dict[str, float]
    endpoints: tuple[EndpointEntry, ...]
    published_cell_times: PublishedCellTimes | None
    public_tor: str | None
    scale: float
    files: tuple[str, ...]
    warnings: tuple[str, ...]
    kind: str | None
    """What the key `kind` says; None for an experiment with Tor."""
    _full_size: dict[str, Level] = field(repr=False)
    _known: KnownNames = field(repr=False)

    @property
    def asked(self) -> dict[str, object]:
        """What was asked for, as plain JSON data."""
        asked = {"experiment": self.name, "scale": self.scale, "seeds": list(self.seeds)}
        # Packs of runs without repeats, of any version, go together.
        return asked | ({"repeats": self.repeats} if self.repeats > 1 else {})

    @property
    def replicates(self) -> tuple[tuple[int, int], ...]:
        """Network and repeat of each run of a variant, network by network."""
        return tuple((seed, repeat) for seed in self.seeds for repeat in range(1, self.repeats + 1))

    @property
    def shrunk(self) -> list[str]:
        """What SCALE changed, one line for people each; empty at full size."""
        if self.scale == 1.0:
            return []
        by_level = {
            name: changes(self._full_size[name].settings, level.settings)
            for name, level in self.levels.items()
        }
        shared = [
            line
            for line in next(iter(by_level.values()))
            if all(line in lines for lines in by_level.values())
        ]
        own = [
            f"{name}: {line}"
            for name, lines in by_level.items()
            for line in lines
            if line not in shared
        ]
        return shared + own

    def with_overrides(
        self,
        scale: float | None = None,
        seeds: int | Sequence[int] | None = None,
        repeats: int | None = None,
    ) -> Experiment:
        """Return the experiment with other SCALE, NETWORKS or REPEATS; None leaves them as is.

        SCALE multiplies the counts of clients, servers and relays of each role, rounded half up and
        at least 1 where there was one; authorities stay, they carry no load. A role's capacity in
        total stays at `scale` times the full one (:meth:`NetworkSettings.capacity_total_factor`).

        Raises:
            UserError: a scale, seeds or repeats out of range, a network that is impossible at this
                scale, or a scope that these runs do not allow.
        """
        changed = self
        if scale is not None:
            changed = changed._scaled(scale)
        if seeds is not None:
            changed = replace(changed, seeds=checked_seeds(seeds))
        if repeats is not None:
            changed = replace(changed, repeats=checked_repeats(repeats))
        wrong = scope_problem(changed.scope, changed.seeds, changed.repeats)
        if wrong:
            raise UserError(f"{self.name}: scope: {wrong}", "set NETWORKS=1 and REPEATS")
        return changed

    def require_variants(self, names: Sequence[str]) -> None:
        """Raise UserError if the settings are impossible with these variants."""
        kind = FILE_KINDS.get(self.kind or "", TOR_KIND)
        found = [
            finding
            for level in self.levels.values()
            for finding in kind.impossible(_with_variants(level.settings, names), self._known)
        ]
        if found:
            raise UserError(_lines(f"{self.name} with {', '.join(names)}", found))

    def _scaled(self, scale: float) -> Experiment:
        scale = checked_scale(scale)
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
        found = [
            finding
            for level in levels.values()
            for finding in impossible(level.settings, self._known)
        ]
        if found:
            raise UserError(_lines(f"{self.name} at SCALE={scale:g}", found))
        return replace(self, scale=scale, levels=levels)


def _with_variants(settings: Any, names: Sequence[str]) -> Any:
    section = "libtorrent" if isinstance(settings, PeersSettings) else "tor"
    changed = getattr(settings, section).model_copy(update={"variants": tuple(names)})
    return settings.model_copy(update={section: changed})


def _lines(what: str, findings: Iterable[Finding]) -> str:
    lines = [f"{what}: {'.'.join(one.location)}: {one.message}" for one in findings]
    return "\n".join(dict.fromkeys(lines))
