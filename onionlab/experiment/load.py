"""Load an experiment by its name: return the settings of each level, or report all errors.

A level is one of the conditions under which an experiment compares its variants. A file is merged
with the files that it extends, and then the overrides of each level are merged on top. Every value
keeps its file and its line, so that each error can name them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onionlab.errors import UserError
from onionlab.experiment.checks import find_errors, find_warnings
from onionlab.experiment.experiment import Experiment, Level, scale_settings, scope_problem
from onionlab.experiment.header import (
    EXPERIMENTS,
    NAME,
    RESERVED_NAMES,
    SUFFIX,
    ExperimentFile,
    Header,
    TorHeader,
    figures_without_streams,
    resolve_figures,
)
from onionlab.experiment.peers import PeersFile, PeersHeader, PeersSettings
from onionlab.experiment.settings import REPLACED_AS_UNIT, Settings
from onionlab.experiment.tor_checks import KnownNames
from onionlab.experiment.tor_options import read_defaults
from onionlab.experiment.tornettools import TornetFile, TornetHeader, TornetSettings
from onionlab.experiment.tornettools_networks import add_network_facts
from onionlab.network.geography import known_capacities, known_geographies
from onionlab.paths import is_file
from onionlab.programs.libtorrent.variants import FOLDER as LIBTORRENT_FOLDER
from onionlab.programs.libtorrent.variants import load_peer_variants
from onionlab.programs.tor.variants import FOLDER as TOR_FOLDER
from onionlab.programs.tor.variants import load_variants
from onionlab.yamlfile.model import (
    Model,
    as_user_error,
    display_name,
    in_order,
    load_resolved,
    read_file,
    validate_tree,
)
from onionlab.yamlfile.tree import Node, Problem, merge, plain, without_removed
from onionlab.yamlfile.units import nearest, show

NOT_EXPERIMENTS = ("nightly.yaml",)
LIST_HINT = "`make list` shows all experiments"
NULL_HINT = "A null in your file removes a setting of `tor` that another file has."
REFERENCE_HINT = (
    "docs/reference/experiments.md explains the keys; `onionlab schema --reference` lists them"
)
TWO_NAMES = "is another name of `networks`, which is here too; remove one of them"

AnySettings = Settings | PeersSettings | TornetSettings
"""The settings of a run, of any kind of experiment."""


@dataclass(frozen=True)
class FileKind:
    """The pydantic models of one kind of experiment: of its file, its header and its settings."""

    file: type[Model]
    header: type[Header[Any, Any]]
    settings: type[Settings] | type[PeersSettings] | type[TornetSettings]


FILE_KINDS: dict[str | None, FileKind] = {
    None: FileKind(ExperimentFile, TorHeader, Settings),
    "peers": FileKind(PeersFile, PeersHeader, PeersSettings),
    "tornettools": FileKind(TornetFile, TornetHeader, TornetSettings),
}
"""Value of the key `kind` -> the models. The value None is for files without this key: Tor in
generated networks."""


def experiment_names(root: Path) -> list[str]:
    """Return the names of all experiments, sorted.

    Files in subfolders of `experiments/` are omitted: experiments extend them, or they are claims.
    """
    files = (root / EXPERIMENTS).glob(f"*{SUFFIX}")
    return sorted(path.stem for path in files if path.name not in NOT_EXPERIMENTS)


def is_path(name_or_path: str) -> bool:
    """Return whether the argument is the path of a file, and not the name of an experiment."""
    return name_or_path.endswith((SUFFIX, ".yml")) or os.sep in name_or_path


def load(name_or_path: str, *, root: Path, any_tor: bool = False) -> Experiment:
    """Load an experiment by its name or by the path of its file.

    any_tor: whether commits of Tor will replace the variants. If they will, consensus parameters,
    values and flags that Tor 0.4.9 does not accept are only warnings, as for a variant whose source
    is a commit or a tarball.

    Raises:
        UserError: there is no such experiment, its file has errors, or its imported networks were
            changed or contradict its settings. The message has one line for each error in the file:
            file, line, path of keys, what was expected, and the nearest valid name.
    """
    path = _find_experiment(name_or_path, root)
    reader = _Reader(root)
    tree = reader.read(path)
    experiment = None
    if tree is not None:
        experiment = _resolve(tree, path.stem, reader, _known_names(root, any_tor))
    if reader.problems or experiment is None:
        file = reader.files[0]
        inherited = any(one.file != file and one.path.startswith("tor.") for one in reader.problems)
        hint = f"{NULL_HINT} {REFERENCE_HINT}" if inherited else REFERENCE_HINT
        raise as_user_error(file, in_order(reader.problems, reader.files), hint)
    return experiment


def resolve_experiment(experiment: Experiment) -> dict[str, Any]:
    """Return everything that runs depend on, as JSON data for `load_resolved_experiment`."""
    return {
        "name": experiment.name,
        "kind": experiment.kind,
        "seeds": list(experiment.seeds),
        "repeats": experiment.repeats,
        "levels": {
            name: {"label": level.label, "settings": level.settings.model_dump(mode="json")}
            for name, level in experiment.levels.items()
        },
    }


def load_resolved_experiment(resolved: Mapping[str, Any]) -> Experiment:
    """Return the experiment that ``resolved``, a result of `resolve_experiment`, describes.

    The experiment lacks the keys that runs do not depend on, such as titles and figures.

    Raises:
        ValidationError, LookupError, TypeError, AttributeError, StopIteration: ``resolved`` is
            damaged, or from another version of this program.
    """
    model = FILE_KINDS[resolved["kind"]].settings
    levels = {
        name: Level(level["label"], load_resolved(model, level["settings"]))
        for name, level in resolved["levels"].items()
    }
    compared = next(iter(levels.values())).settings.compared
    return Experiment(
        name=resolved["name"],
        kind=resolved["kind"],
        variants=compared.variants,
        baseline=compared.baseline,
        seeds=tuple(resolved["seeds"]),
        repeats=resolved["repeats"],
        levels=levels,
    )


def _find_experiment(name_or_path: str, root: Path) -> Path:
    """Return the file of an experiment.

    Raises UserError if the file does not exist, or no experiment can have its name.
    """
    if is_path(name_or_path):
        path = Path(name_or_path)
        if not is_file(path):
            raise UserError(f"no experiment file {show(name_or_path)}", LIST_HINT)
    else:
        path = root / f"{EXPERIMENTS}/{name_or_path}{SUFFIX}"
        names = experiment_names(root)
        if name_or_path not in names:
            message = f"no experiment called {show(name_or_path)}{nearest(name_or_path, names)}"
            raise UserError(message, LIST_HINT)
    named = f"{path}: an experiment is named like its file, and"
    if NAME.fullmatch(path.stem) is None:
        expected = "expected lower-case letters, digits and hyphens"
        raise UserError(f"{named} this name cannot be used: {expected}")
    if RESERVED_NAMES.fullmatch(path.stem) is not None:
        message = f"{named} results/{path.stem} is for what another command makes"
        raise UserError(message, "give the file another name")
    return path


def _known_names(root: Path, any_tor: bool) -> KnownNames:
    has_tor = (root / f"{TOR_FOLDER}/variants.yaml").is_file()
    has_peers = (root / f"{LIBTORRENT_FOLDER}/variants.yaml").is_file()
    return KnownNames(
        variants=load_variants(root) if has_tor else None,
        peers=frozenset(load_peer_variants(root)) if has_peers else None,
        capacities=known_capacities(root),
        geographies=known_geographies(root),
        is_file=lambda path: is_file(root / path),
        tor_defaults=read_defaults(root),
        any_tor=any_tor,
    )


class _Reader:
    """Reads a file and the files that it extends, and collects their names and problems.

    files: the names of the files for messages, in the order of reading.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: list[str] = []
        self.problems: list[Problem] = []

    def read(self, path: Path, chain: tuple[Path, ...] = ()) -> Node | None:
        """Return the tree of a file and of all files that it extends, without the key `extends`.

        Return None if the file is not valid YAML. chain: the files that led to this one; each file
        in it extends the next.
        """
        file = display_name(path, self.root)
        if file not in self.files:
            self.files.append(file)
        tree, problems = read_file(path, file)
        self.problems += problems
        if tree is None:
            return None
        tree = self._rename_seeds(tree)
        merged = tree.without("extends")
        for base in reversed([*self._bases(tree, path, (*chain, path.resolve()))]):
            # Later files in the list override earlier ones, and the file itself overrides all.
            merged = merge(base, merged, replaced=REPLACED_AS_UNIT)
        return merged

    def _rename_seeds(self, tree: Node) -> Node:
        """Rename the key `seeds` to `networks`, so that files with either name can be merged."""
        if not isinstance(tree.value, dict) or "seeds" not in tree.value:
            return tree
        if "networks" in tree.value:
            self.problems.append(tree.value["seeds"].problem(TWO_NAMES))
            return tree.without("seeds")
        named = {"networks" if key == "seeds" else key: node for key, node in tree.value.items()}
        return replace(tree, value=named)

    def _bases(self, tree: Node, path: Path, chain: tuple[Path, ...]) -> Iterator[Node]:
        entry = tree.get("extends")
        if entry is None:
            return
        for node in [node for _, node in entry.children()] or [entry]:
            parent = node.value
            if not isinstance(parent, str) or not parent.strip() or "\0" in parent:
                expected = "expected a file such as base/table1.yaml or a list"
                self.problems.append(node.problem(f"{expected}, got {show(plain(node))}"))
                continue
            is_relative = parent.startswith(("./", "../"))
            folder = path.parent if is_relative else self.root / EXPERIMENTS
            if (base := self._read_base(node, folder / parent, chain)) is not None:
                yield base

    def _read_base(self, node: Node, base: Path, chain: tuple[Path, ...]) -> Node | None:
        if base.resolve() in chain:
            circle = [*chain[chain.index(base.resolve()) :], base]
            names = " -> ".join(display_name(one, self.root) for one in circle)
            message = f"the files extend each other in a circle: {names}"
        elif is_file(base):
            return self.read(base, chain)
        else:
            folder = self.root / EXPERIMENTS
            known = [path.relative_to(folder).as_posix() for path in folder.rglob(f"*{SUFFIX}")]
            message = f"no file {show(node.value)}{nearest(str(node.value), sorted(known))}"
        self.problems.append(node.problem(message))
        return None


def _resolve(tree: Node, name: str, reader: _Reader, known: KnownNames) -> Experiment | None:
    """Return the experiment of a merged tree. Add its problems to those of the reader.

    Return None if there are problems with which it cannot be resolved.

    name: name of the experiment; known: names that other files define.
    """
    problems = reader.problems
    word = _kind(tree, problems)
    kind = FILE_KINDS[word]
    sections = kind.settings.model_fields
    base = tree.without(*(str(key) for key, _ in tree.children() if key not in sections))
    header, found = validate_tree(
        _without_settings(tree, kind), kind.header, suggest_from=kind.file
    )
    problems += found
    level_trees = {key: _apply_removals(one) for key, one in _level_trees(base, tree).items()}
    base = _apply_removals(base)
    if level_trees:
        # Validate the base itself to find errors in values that every level replaces.
        problems += validate_tree(base, kind.settings, partial=True)[1]
    else:
        level_trees = {name: base}
    levels: dict[str, Level] = {}
    warnings: list[Problem] = []

    for level_name, level_tree in level_trees.items():
        settings, found = validate_tree(level_tree, kind.settings)
        problems += found
        if settings is not None:
            problems += [level_tree.locate(*one) for one in find_errors(settings, known)]
            warnings += [level_tree.locate(*one) for one in find_warnings(settings, known)]
            label = header.levels[level_name].label if header and header.levels else name
            if isinstance(settings, Settings):
                settings = scale_settings(settings, 1.0)
            levels[level_name] = Level(label, settings)
    if header is None or len(levels) < len(level_trees):
        return None
    problems += _differing_variants(level_trees, levels)
    wrong_scope = scope_problem(header.scope, header.networks, header.repeats)
    if wrong_scope:
        problems.append(tree.locate(("scope",), wrong_scope))
    figures, found = resolve_figures(header, tree, levels)
    problems += found
    if not problems:
        levels = {
            level_name: Level(level.label, add_network_facts(reader.root, name, level.settings))
            for level_name, level in levels.items()
        }
    if header.margins or header.endpoints:
        # The definitions of metrics take half a second to import.
        from onionlab.experiment.endpoints import judging_problems

        problems += judging_problems(tree, header, [one.settings for one in levels.values()])
    if problems:
        return None
    if kind.settings is Settings:
        warnings += figures_without_streams(figures, tree, levels)
    compared = next(iter(levels.values())).settings.compared
    return Experiment(
        name=name,
        header=header,
        variants=compared.variants,
        baseline=compared.baseline,
        seeds=header.networks,
        repeats=header.repeats,
        levels=levels,
        figures=figures,
        files=tuple(reader.files),
        warnings=tuple(str(warning) for warning in in_order(warnings, reader.files)),
        kind=word,
        _full_size=levels,
        _known=known,
    )


def _kind(tree: Node, problems: list[Problem]) -> str | None:
    """Return the value of the key `kind`. If it is wrong, return None and add a problem."""
    entry = tree.get("kind")
    if entry is None:
        return None
    if isinstance(entry.value, str) and entry.value in FILE_KINDS:
        return entry.value
    words = " or ".join(word for word in FILE_KINDS if word)
    message = f"expected {words}, or no key `kind` for an experiment with Tor"
    problems.append(entry.problem(f"{message}, got {show(entry.value)}"))
    return None


def _without_settings(tree: Node, kind: FileKind) -> Node:
    """Return the tree without the settings of runs, at its top and in its levels."""
    header = tree.without(*kind.settings.model_fields, "extends")
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
        trees[name] = base
        if overrides is not None and overrides.value is not None:
            trees[name] = merge(base, overrides, replaced=REPLACED_AS_UNIT)
    return trees


def _apply_removals(tree: Node) -> Node:
    """Remove the settings below `tor` that an overriding null cancels, so that defaults apply.

    Outside of `tor`, a null is a value: options of Shadow can be null.
    """
    tor = tree.get("tor")
    if tor is None or not isinstance(tree.value, dict):
        return tree
    return replace(tree, value={**tree.value, "tor": without_removed(tor)})


def _differing_variants(trees: dict[str, Node], levels: dict[str, Level]) -> Iterator[Problem]:
    """Yield a problem for each level that has other variants or baselines than the first level."""
    first = next(iter(levels.values())).settings
    for name, level in levels.items():
        for key in ("variants", "baseline"):
            if getattr(level.settings.compared, key) != getattr(first.compared, key):
                yield trees[name].locate((first.section, key), "must be the same in all levels")
