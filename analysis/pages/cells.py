"""Contents of the report's section on cell traces, for the report's template."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analysis.celltrace.cells import JOINED, MEANINGS
from analysis.celltrace.statistics import Group, Stage
from analysis.celltrace.summaries import (
    POSITIONS,
    STAGES,
    WAITS,
    Row,
    TraceTable,
    mean_times,
    mean_waits,
)
from analysis.figures.cells import Columns, column_labels, mean_relay_times_ms
from analysis.figures.writing import WrittenFigure
from analysis.formats.study import Study


def section(table: TraceTable, study: Study, figures: Sequence[WrittenFigure]) -> dict[str, Any]:
    """Return the contents of the section."""
    labels = column_labels(table, study)
    means = mean_times(table)
    waits = {(row["role"], row["level"], row["variant"]): row for row in mean_waits(table)}
    fates: Counter[str] = Counter()
    streams: Counter[str] = Counter()
    for _, counts in table.counts:
        streams.update(counts.streams)
        for relay in counts.relays:
            fates.update(relay.fates)
    return {
        "table": table,
        "labels": labels,
        "relays": [(run, relay) for run, counts in table.counts for relay in counts.relays],
        "cells": fates.total(),
        "figures": figures,
        "times": {
            role: {group: _times(means, study, labels, role, group) for group in Group}
            for role in table.relaying_roles
        },
        "stage_names": STAGES,
        "wait_names": WAITS,
        "stages": {
            role: {key: _stages(means, role, key) for key in labels}
            for role in table.relaying_roles
        },
        "waits": {
            role: [
                (label, waits[role, *key]) for key, label in labels.items() if (role, *key) in waits
            ]
            for role in dict.fromkeys(role for role, _, _ in waits)
        },
        "spikes": [
            row for role in table.relaying_roles for row in table.spikes if row["role"] == role
        ],
        "positions": POSITIONS,
        "first_bytes": list(_first_bytes(table)),
        "fates": [
            (meaning, fate in JOINED, fates[fate.name])
            for fate, meaning in MEANINGS.items()
            if fates[fate.name]
        ],
        "streams": streams,
    }


def _times(
    means: Sequence[Row], study: Study, labels: Columns, role: str, group: Group
) -> list[dict[str, Any]]:
    """Return the rows with the times of a role and a group of circuits.

    Rows with times from a publication come last, and have no number of circuits.
    """
    rows = [
        {"label": labels[row["level"], row["variant"]], "circuits": row["circuits"], "times": row}
        for row in means
        if (row["role"], row["group"], row["stage"]) == (role, group, Stage.TOTAL)
    ]
    published = study.published_cell_times
    if published and published.role == role:
        for level in study.levels:
            for name, times in published.levels.get(level.name, {}).items():
                if group.startswith(name):  # experiment files use the group's first word
                    label = f"{level.label}, {published.source}"
                    rows.append({"label": label, "circuits": None, "times": times})
    return rows


def _stages(means: Sequence[Row], role: str, key: tuple[str, str]) -> list[Row | None]:
    """Return the mean times of each stage, or None for a stage that no cell went through."""
    by_stage = {
        row["stage"]: row
        for row in means
        if (row["role"], row["group"], row["level"], row["variant"]) == (role, Group.ALL, *key)
        and row["count"]
    }
    return [by_stage.get(stage) for stage in STAGES]


def _first_bytes(table: TraceTable) -> Iterator[dict[str, Any]]:
    """Yield the mean time to first byte, and its parts inside relays by position and stage.

    There is an item for each class of clients, level and variant.
    """
    means_ms = mean_relay_times_ms(table)
    places = {(row["class"], row["level"], row["variant"]) for row in table.relay_times}
    for class_name, level, variant in sorted(places):
        per_run = {
            (row["seed"], row["repeat"]): row
            for row in table.relay_times
            if (row["class"], row["level"], row["variant"]) == (class_name, level, variant)
        }.values()
        parts_ms = [
            [means_ms[level, variant, class_name, position, stage] for stage in STAGES]
            for position in POSITIONS
        ]
        yield {
            "class_name": class_name,
            "key": (level, variant),
            "followed": sum(row["followed"] for row in per_run),
            "streams": sum(row["streams"] for row in per_run),
            "ttfb_ms": 1000 * float(np.mean([row["ttfb_s"] for row in per_run])),
            "inside_ms": float(np.sum(parts_ms)),
            "parts_ms": parts_ms,
        }
