"""From the name of an experiment to its fully resolved settings, or to one list of what is wrong.

A file is read, merged on top of what it extends, checked for unknown keys, parsed by the models and
checked for impossible settings. Every step keeps the line each value was written on.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import yaml

from onionlab.errors import UserError
from onionlab.experiment import values
from onionlab.experiment.checks import Finding, KnownNames, impossible, questionable
from onionlab.experiment.peers import KIND as PEERS
from onionlab.experiment.peers import PEER_FIGURE_KINDS, PeersFile, PeersHeader, PeersSettings
from onionlab.experiment.peers_checks import impossible as peers_impossible
from onionlab.experiment.schema import (
    COMPARING_FIGURE_KINDS,
    DEFAULT_FIGURE_KINDS,
    ExperimentFile,
    Figure,
    Header,
    NetworkSettings,
    PublishedCellTimes,
    Settings,
    TorHeader,
    TrafficClass,
)
from onionlab.programs.libtorrent.variants import FOLDER as LIBTORRENT_FOLDER
from onionlab.programs.libtorrent.variants import load_peer_variants
from onionlab.programs.tor.variants import load_variants
from onionlab.yamlfile.kinds import nearest
from onionlab.yamlfile.model import Model
from onionlab.yamlfile.reading import (
    as_user_error,
    display_name,
    in_order,
    read_file,
    validate_tree,
)
from onionlab.yamlfile.shape import shape_of_model, unknown_keys
from onionlab.yamlfile.tree import Node, Problem, merge
from onionlab.yamlfile.units import show

__all__ = ["Experiment", "Level", "checked_seeds", "experiment_names", "load", "parse_seeds"]

SUFFIX = ".yaml"
MAX_SCALE = 100.0
REQUEST_OF_FIGURE_BYTES = 320 * 1024

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
SEEDS = values.seeds()
FILE_NAMES = values.file_names()
# What else lies in the folder.
NOT_EXPERIMENTS = ("nightly.yaml",)
LIST_HINT = "`make list` shows all experiments"
REFERENCE_HINT = "docs/reference/experiments.md explains every key"

FIGURE_TITLES = {
    "throughput-timeouts": "Network throughput and timeouts",
    "ttfb-320kib": "Time to first byte and to 320 KiB",
    "quantile-ratios": "Times as ratios to the baseline's",
    "stream-progress": "Bytes of each stream over time",
    "starvation-map": "Starvation by bottleneck and number of streams",
    "transfer-window": "Congestion window, bytes in flight and requests",
}

AnyModel = TypeVar("AnyModel", bound=Model)

AnySettings = Settings | PeersSettings
"""Settings of a run, of either kind of experiment."""


@dataclass(frozen=True)
class FileKind:
    """A kind of experiment: which keys its files have, and what can be wrong with them.

    Attributes:
        file: all keys of a file.
        header: those that are not settings.
        settings: those that are.
        figures: kinds of figures that are drawn where a file names none.
        impossible: what would make a run of the settings fail.
        questionable: what is allowed, but hardly meant.
    """

    file: type[Model]
    header: type[Header]
    settings: type[Settings] | type[PeersSettings]
    figures: tuple[str, ...]
    impossible: Callable[[Any, KnownNames], Iterable[Finding]]
    questionable: Callable[[Any], Iterable[Finding]]

    @property
    def sections(self) -> tuple[str, ...]:
        """The keys of settings."""
        return tuple(self.settings.model_fields)


TOR_KIND = FileKind(
    ExperimentFile, TorHeader, Settings, DEFAULT_FIGURE_KINDS, impossible, questionable
)
FILE_KINDS = {
    PEERS: FileKind(
        PeersFile,
        PeersHeader,
        PeersSettings,
        PEER_FIGURE_KINDS,
        peers_impossible,
        lambda settings: (),
    )
}
"""By the word at a file's key `kind`; a file without that key is about Tor."""


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
        seeds: Every variant runs with every seed.
        levels: By name, in the file's order; at least one.
        figures: Each with its level and title filled in.
        margins: What counts as equivalent, for metrics where the file says so.
        published_cell_times: What others measured of cells, or None.
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
    levels: dict[str, Level]
    figures: tuple[Figure, ...]
    margins: dict[str, float]
    published_cell_times: PublishedCellTimes | None
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
        return {"experiment": self.name, "scale": self.scale, "seeds": list(self.seeds)}

    @property
    def shrunk(self) -> list[str]:
        """What SCALE changed, one line for people each; empty at full size."""
        if self.scale == 1.0:
            return []
        by_level = {
            name: _changes(self._full_size[name].settings, level.settings)
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
        self, scale: float | None = None, seeds: int | Sequence[int] | None = None
    ) -> Experiment:
        """The same experiment with another SCALE or other SEEDS; None leaves a thing as it is.

        SCALE multiplies the counts of clients, servers and relays of each role, rounded half up and
        at least 1 where there was one; authorities stay, they carry no load. A role's capacity in
        total stays at `scale` times the full one (:meth:`NetworkSettings.capacity_total_factor`).

        Raises:
            UserError: a scale or seeds out of range, or a network that is impossible at this scale.
        """
        changed = self
        if scale is not None:
            changed = changed._scaled(scale)
        if seeds is not None:
            changed = replace(changed, seeds=checked_seeds(seeds))
        return changed

    def _scaled(self, scale: float) -> Experiment:
        if not (math.isfinite(scale) and 0 < scale <= MAX_SCALE):
            raise UserError(
                f"SCALE: expected a number more than 0 and at most {MAX_SCALE:g}, such as 0.1, "
                f"got {show(scale)}"
            )
        if self.kind is not None:
            if scale == 1:
                return self
            raise UserError(
                f"SCALE: an experiment of kind {self.kind} has no counts to scale",
                "leave SCALE out",
            )
        levels = {
            name: Level(level.label, scale_settings(level.settings, float(scale)))
            for name, level in self._full_size.items()
        }
        problems = [
            f"{self.name} at SCALE={scale:g}: {'.'.join(finding.location)}: {finding.message}"
            for level in levels.values()
            for finding in impossible(level.settings, self._known)
        ]
        if problems:
            raise UserError("\n".join(dict.fromkeys(problems)))
        return replace(self, scale=float(scale), levels=levels)


def experiment_names(root: Path) -> list[str]:
    """The names of the experiments of a checkout, sorted (parts to extend are not among them)."""
    paths = (root / "experiments").glob(f"*{SUFFIX}")
    return sorted(path.stem for path in paths if path.name not in NOT_EXPERIMENTS)


def parse_seeds(text: str) -> int | list[int]:
    """SEEDS as given on a command line: a number of seeds ("3") or a list of them ("1,2,7").

    Raises:
        UserError: neither of them.
    """
    if re.fullmatch(r"[0-9]{1,10}(, ?[0-9]{1,10})*,?", text.strip(), re.ASCII) is None:
        raise UserError(
            f"SEEDS: expected a number of seeds or a list such as 1,2,7, got {show(text)}",
            "`make experiment` takes SEEDS=auto too" if text == "auto" else None,
        )
    numbers = [int(part) for part in text.split(",") if part.strip()]
    seeds = numbers if "," in text else numbers[0]
    checked_seeds(seeds)
    return seeds


def load(name_or_path: str, *, root: Path) -> Experiment:
    """Load an experiment by its name, or from a path that ends in ``.yaml``.

    Raises:
        UserError: no such experiment, or everything that is wrong with its file, one line each
            (file, line, path of keys, what was expected, the nearest valid name).
    """
    path = _find(name_or_path, root)
    known = _known_names(root)
    reader = _Reader(root)
    tree = reader.read(path)
    problems = reader.problems
    experiment = None
    if tree is not None:
        experiment, more = _resolve(tree, path.stem, tuple(reader.files), known)
        problems = problems + more
    if problems or experiment is None:
        raise as_user_error(reader.display(path), in_order(problems, reader.files), REFERENCE_HINT)
    return experiment


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
            "scale": scale,
        }
    )
    traffic: dict[str, TrafficClass] = {
        name: one.model_copy(update={"count": scaled(one.count), "full_count": one.count})
        for name, one in settings.traffic.items()
    }
    return settings.model_copy(update={"network": smaller, "traffic": traffic})


def _changes(full: Settings, scaled: Settings) -> list[str]:
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


def checked_seeds(seeds: object) -> tuple[int, ...]:
    """All seeds that a number of them, or a list, stands for. Raises UserError."""
    try:
        return SEEDS.parse(seeds)  # type: ignore[no-any-return]
    except ValueError as error:
        raise UserError(f"SEEDS: {error}") from None


def _find(name_or_path: str, root: Path) -> Path:
    folder = root / "experiments"
    if name_or_path.endswith((SUFFIX, ".yml")) or os.sep in name_or_path:
        path = Path(name_or_path)
        if not path.is_file():
            raise UserError(f"no experiment file {show(name_or_path)}", LIST_HINT)
    else:
        path = folder / f"{name_or_path}{SUFFIX}"
        names = experiment_names(root)
        if name_or_path not in names:
            raise UserError(
                f"no experiment called {show(name_or_path)}{nearest(name_or_path, names)}",
                LIST_HINT,
            )
    if NAME.fullmatch(path.stem) is None:
        raise UserError(
            f"{path}: an experiment is named like its file, and this name cannot be used: "
            "expected lower-case letters, digits and hyphens"
        )
    return path


def _known_names(root: Path) -> KnownNames:
    variants = None
    if (root / "tor-patches" / "variants.yaml").is_file():
        variants = frozenset(load_variants(root))
    peers = None
    if (root / LIBTORRENT_FOLDER / "variants.yaml").is_file():
        peers = frozenset(load_peer_variants(root))
    return KnownNames(
        variants=variants,
        peers=peers,
        capacities=_keys_in(root / "configs" / "relay-capacity.yaml", "distributions"),
        geographies=_keys_in(root / "configs" / "regions.yaml", "geographies"),
    )


def _keys_in(path: Path, key: str) -> frozenset[str] | None:
    """The keys under one key of a configuration file; None without the file or the key.

    What is wrong with such a file is for its own reader to say.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    below = content.get(key) if isinstance(content, dict) else None
    return frozenset(map(str, below)) if isinstance(below, dict) else None


class _Reader:
    """Reads a file and what it extends; collects the files and the problems on the way."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.files: list[str] = []
        self.problems: list[Problem] = []

    def display(self, path: Path) -> str:
        """A file as messages name it."""
        return display_name(path, self.root)

    def read(self, path: Path, chain: tuple[Path, ...] = ()) -> Node | None:
        """The file on top of all it extends, without `extends`; None if nothing can be read."""
        file = self.display(path)
        if file not in self.files:
            self.files.append(file)
        tree, problems = read_file(path, file)
        self.problems += problems
        if tree is None:
            return None
        chain = (*chain, path.resolve())
        bases = [
            base
            for node, parent in self._parents(tree, path)
            if (base := self._read_parent(node, parent, chain)) is not None
        ]
        merged = tree.without("extends")
        for base in reversed(bases):
            # Later names in the list win over earlier ones, the file itself over all.
            merged = merge(base, merged, whole=values.WHOLE)
        return merged

    def _parents(self, tree: Node, path: Path) -> Iterator[tuple[Node, Path]]:
        entry = tree.get("extends")
        if entry is None:
            return
        items = [node for _, node in entry.children()] or [entry]
        for node in items:
            try:
                (parent,) = FILE_NAMES.parse(node.value)
            except ValueError as error:
                self.problems.append(node.problem(str(error)))
                continue
            own = parent.startswith(("./", "../"))
            yield node, (path.parent if own else self.root / "experiments") / parent

    def _read_parent(self, node: Node, parent: Path, chain: tuple[Path, ...]) -> Node | None:
        if parent.resolve() in chain:
            circle = [*chain[chain.index(parent.resolve()) :], parent]
            way = " -> ".join(self.display(one) for one in circle)
            self.problems.append(node.problem(f"the files extend each other in a circle: {way}"))
            return None
        if not parent.is_file():
            folder = self.root / "experiments"
            names = sorted(one.relative_to(folder).as_posix() for one in folder.rglob(f"*{SUFFIX}"))
            self.problems.append(
                node.problem(f"no file {show(node.value)}{nearest(str(node.value), names)}")
            )
            return None
        return self.read(parent, chain)


def _resolve(
    tree: Node, name: str, files: tuple[str, ...], known: KnownNames
) -> tuple[Experiment | None, list[Problem]]:
    word, kind, problems = _kind(tree)
    problems += unknown_keys(tree, shape_of_model(kind.file))
    base = tree.without(*(str(key) for key, _ in tree.children() if key not in kind.sections))
    header, found = validate_tree(_header_tree(tree, kind), kind.header)
    problems += found
    level_trees = _level_trees(base, tree)
    if level_trees:
        # Each level is checked as a whole below; this finds what every level happens to replace.
        problems += validate_tree(base, kind.settings, partial=True)[1]
    else:
        level_trees = {name: base}
    levels: dict[str, Level] = {}
    warnings: list[Problem] = []
    for level_name, level_tree in level_trees.items():
        settings, found = validate_tree(level_tree, kind.settings)
        problems += found
        if settings is not None:
            problems += _located(level_tree, kind.impossible(settings, known))
            warnings += _located(level_tree, kind.questionable(settings))
            label = header.levels[level_name].label if header and header.levels else name
            if isinstance(settings, Settings):
                settings = scale_settings(settings, 1.0)
            levels[level_name] = Level(label, settings)
    if header is None or len(levels) < len(level_trees):
        return None, problems
    problems += _differing_variants(level_trees, levels)
    figures, found = _figures(header, tree, levels, kind)
    problems += found
    if problems:
        return None, problems
    first = next(iter(levels.values())).settings
    if kind is TOR_KIND:
        warnings += _figures_without_streams(figures, tree, levels)
    return Experiment(
        name=name,
        title=header.title,
        description=header.description,
        paper=header.paper,
        variants=first.variants,
        baseline=first.baseline,
        seeds=header.seeds,
        levels=levels,
        figures=figures,
        margins=header.margins,
        published_cell_times=header.published_cell_times if isinstance(header, TorHeader) else None,
        scale=1.0,
        files=files,
        warnings=tuple(str(warning) for warning in in_order(warnings, files)),
        kind=word,
        _full_size=levels,
        _known=known,
    ), []


def _kind(tree: Node) -> tuple[str | None, FileKind, list[Problem]]:
    """The word at the key `kind`, what it means, and what is wrong with it."""
    entry = tree.get("kind")
    if entry is None:
        return None, TOR_KIND, []
    if isinstance(entry.value, str) and entry.value in FILE_KINDS:
        return entry.value, FILE_KINDS[entry.value], []
    expected = f"expected {' or '.join(FILE_KINDS)}, or no key `kind` for an experiment with Tor"
    return None, TOR_KIND, [entry.problem(f"{expected}, got {show(entry.value)}")]


def _header_tree(tree: Node, kind: FileKind) -> Node:
    """The tree without the settings, those of the levels included."""
    header = tree.without(*kind.sections, "extends")
    levels = header.get("levels")
    if levels is None or not isinstance(levels.value, dict):
        return header
    labels = {name: entry.without("overrides") for name, entry in levels.value.items()}
    assert isinstance(header.value, dict)
    return replace(header, value={**header.value, "levels": replace(levels, value=labels)})


def _level_trees(base: Node, tree: Node) -> dict[str, Node]:
    levels = tree.get("levels")
    if levels is None or not isinstance(levels.value, dict):
        return {}
    trees = {}
    for name, entry in levels.value.items():
        overrides = entry.get("overrides")
        given = overrides is not None and overrides.value is not None
        trees[name] = (
            merge(base, overrides, whole=values.WHOLE) if overrides is not None and given else base
        )
    return trees


def _located(tree: Node, findings: Iterable[Finding]) -> list[Problem]:
    return [tree.locate(finding.location, finding.message) for finding in findings]


def _differing_variants(trees: dict[str, Node], levels: dict[str, Level]) -> Iterator[Problem]:
    """The variants are what an experiment compares, so they are the same in all its levels."""
    first = next(iter(levels.values())).settings
    section = "tor" if isinstance(first, Settings) else "libtorrent"
    for name, level in levels.items():
        for key in ("variants", "baseline"):
            if getattr(level.settings, key) != getattr(first, key):
                yield trees[name].locate((section, key), "must be the same in all levels")


def _figures(
    header: Header, tree: Node, levels: dict[str, Level], file_kind: FileKind
) -> tuple[tuple[Figure, ...], list[Problem]]:
    """The figures with level and title filled in; without any, each usual kind for each level."""
    variants = next(iter(levels.values())).settings.variants
    listed = header.figures or tuple(
        Figure.model_construct(id=f"{level}-{kind}", kind=kind, level=level)
        for level in levels
        for kind in file_kind.figures
        if len(variants) > 1 or kind not in COMPARING_FIGURE_KINDS
    )
    problems = []
    figures = []
    for position, figure in enumerate(listed):
        where = ("figures", position)
        if any(other.id == figure.id for other in listed[:position]):
            problems.append(tree.locate((*where, "id"), f"{show(figure.id)} stands there twice"))
        level = figure.level
        if level is None and len(levels) == 1:
            level = next(iter(levels))
        if level not in levels:
            names = ", ".join(levels)
            message = f"expected one of the levels {names}, got {show(level)}"
            message += nearest(level or "", levels)
            problems.append(tree.locate((*where, "level"), message))
            continue
        title = figure.title or f"{FIGURE_TITLES[figure.kind]}, {levels[level].label}"
        figures.append(figure.model_copy(update={"level": level, "title": title}))
    return tuple(figures), problems


def _figures_without_streams(
    figures: tuple[Figure, ...], tree: Node, levels: dict[str, Level]
) -> Iterator[Problem]:
    """TGen logs when a stream ends; when a longer one passed 320 KiB only its info level tells."""
    for position, figure in enumerate(figures):
        settings = levels[figure.level or ""].settings
        sizes = {one.request_bytes for one in settings.traffic.values()}
        if (
            figure.kind == "ttfb-320kib"
            and REQUEST_OF_FIGURE_BYTES not in sizes
            and settings.engine.tgen.loglevel != "info"
        ):
            message = "no class of clients requests 320 KiB, so no stream has a time to 320 KiB"
            yield tree.locate(("figures", position, "kind"), message)
