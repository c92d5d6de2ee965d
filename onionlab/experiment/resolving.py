"""From the tree of a file to resolved settings for each level, or to what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from onionlab.experiment import values
from onionlab.experiment.checks import Finding, KnownNames
from onionlab.experiment.experiment import Experiment, Level
from onionlab.experiment.file_kinds import TOR_KIND, FileKind, kind_of
from onionlab.experiment.peers import PeersSettings
from onionlab.experiment.report_figures import figures_without_streams, resolve_figures
from onionlab.experiment.scaling import scale_settings
from onionlab.experiment.schema import Settings, TorHeader
from onionlab.experiment.seeds import scope_problem
from onionlab.experiment.tornettools import TornetHeader
from onionlab.yamlfile.reading import in_order, validate_tree
from onionlab.yamlfile.tree import Node, Problem, merge


def resolve(
    tree: Node, name: str, files: tuple[str, ...], known: KnownNames
) -> tuple[Experiment | None, list[Problem]]:
    """The experiment of a merged tree, and all that is wrong with it.

    name: its file's; files: those that the tree was read from, in the order of reading.
    """
    word, kind, problems = kind_of(tree)
    base = tree.without(*(str(key) for key, _ in tree.children() if key not in kind.sections))
    header, found = validate_tree(_header_tree(tree, kind), kind.header, suggest_from=kind.file)
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
    wrong_scope = scope_problem(header.scope, header.networks, header.repeats)
    if wrong_scope:
        problems.append(tree.locate(("scope",), wrong_scope))
    if header.margins or header.endpoints:
        # The definitions of metrics take half a second to import.
        from onionlab.experiment.endpoints import judging_problems

        settings_of_all = [level.settings for level in levels.values()]
        problems += judging_problems(tree, header, settings_of_all)
    figures, found = resolve_figures(header, tree, levels, kind)
    problems += found
    if problems:
        return None, problems
    first = next(iter(levels.values())).settings
    if kind is TOR_KIND:
        warnings += figures_without_streams(figures, tree, levels)
    return Experiment(
        name=name,
        title=header.title,
        description=header.description,
        paper=header.paper,
        variants=first.variants,
        baseline=first.baseline,
        seeds=header.networks,
        repeats=header.repeats,
        scope=header.scope,
        levels=levels,
        figures=figures,
        margins=header.margins,
        endpoints=header.endpoints,
        published_cell_times=header.published_cell_times if isinstance(header, TorHeader) else None,
        public_tor=header.public_tor if isinstance(header, TornetHeader) else None,
        scale=1.0,
        files=files,
        warnings=tuple(str(warning) for warning in in_order(warnings, files)),
        kind=word,
        _full_size=levels,
        _known=known,
    ), []


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
            merge(base, overrides, replaced=values.REPLACED_AS_UNIT)
            if overrides is not None and given
            else base
        )
    return trees


def _located(tree: Node, findings: Iterable[Finding]) -> list[Problem]:
    return [tree.locate(finding.location, finding.message) for finding in findings]


def _differing_variants(trees: dict[str, Node], levels: dict[str, Level]) -> Iterator[Problem]:
    """The variants are what an experiment compares, so they are the same in all its levels."""
    first = next(iter(levels.values())).settings
    section = "libtorrent" if isinstance(first, PeersSettings) else "tor"
    for name, level in levels.items():
        for key in ("variants", "baseline"):
            if getattr(level.settings, key) != getattr(first, key):
                yield trees[name].locate((section, key), "must be the same in all levels")
