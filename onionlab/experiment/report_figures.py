"""The figures of an experiment's report: those that its file lists, or the default ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onionlab.experiment.experiment import Level
from onionlab.experiment.file_kinds import FileKind
from onionlab.experiment.schema import COMPARING_FIGURE_KINDS, Figure, Header
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import nearest, show

REQUEST_OF_FIGURE_BYTES = 320 * 1024

FIGURE_TITLES = {
    "throughput-timeouts": "Network throughput and timeouts",
    "ttfb-320kib": "Time to first byte and to 320 KiB",
    "quantile-ratios": "Times as ratios to the baseline's",
    "stream-progress": "Bytes of each stream over time",
    "starvation-map": "Starvation by bottleneck and number of streams",
    "transfer-window": "Congestion window, bytes in flight and requests",
    "perf-transfer-times": "Transfer times",
    "perf-circuits": "Circuits and first bytes",
    "perf-goodput": "Client goodput and errors",
    "relay-goodput": "Goodput of relays",
}


def resolve_figures(
    header: Header[Any, Any], tree: Node, levels: dict[str, Level], file_kind: FileKind
) -> tuple[tuple[Figure[Any], ...], list[Problem]]:
    """Return the figures with level and title; by default, each kind of figure for each level."""
    variants = next(iter(levels.values())).settings.variants
    listed = header.figures or tuple(
        Figure[Any].model_construct(id=f"{level}-{kind}", kind=kind, level=level)
        for level in levels
        for kind in file_kind.figures
        if len(variants) > 1 or kind not in COMPARING_FIGURE_KINDS
    )
    problems = []
    figures = []
    for position, figure in enumerate(listed):
        where = ("figures", position)
        if any(other.id == figure.id for other in listed[:position]):
            problems.append(tree.locate((*where, "id"), f"{show(figure.id)} is listed twice"))
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


def figures_without_streams(
    figures: tuple[Figure[Any], ...], tree: Node, levels: dict[str, Level]
) -> Iterator[Problem]:
    """Yield figures of times to 320 KiB without data: only TGen's info level has longer streams."""
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
