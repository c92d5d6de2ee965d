"""Values of the report's section on cell traces, for the template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis.celltrace.statistics import Group, Stage
from analysis.celltrace.summaries import (
    NUMBERS,
    POSITIONS,
    RELAY_TIME_COLUMNS,
    STAGES,
    WAITS,
    Row,
    TraceTable,
    fate_counts,
    mean_times,
    mean_waits,
    stream_counts,
)
from analysis.figures.cells import TraceFigure, column_labels
from analysis.formats.plan_file import format_network
from analysis.formats.study import Study

GROUP_NAMES: dict[Group, Literal["all", "busiest", "quiet", "busy"]] = {
    Group.ALL: "all",
    Group.BUSIEST: "busiest",
    Group.QUIET: "quiet",
    Group.BUSY: "busy",
}
"""Names of groups in experiment files."""

Show = Callable[[float | None], str]


def section(
    table: TraceTable,
    study: Study,
    figures: Sequence[TraceFigure],
    show: Show,
    uri: Callable[[bytes], str],
) -> dict[str, Any] | None:
    """Return the values of the section; None without traces. show: formats a number."""
    if not table:
        return None
    labels = {(level, variant): label for level, variant, label in column_labels(table, study)}
    relays = [relay for _, counts in table.counts for relay in counts.relays]
    fates = fate_counts(table)
    cells = sum(n for _, _, n in fates)

    def number(value: float) -> str:
        return show(None if np.isnan(value) else value)

    return {
        "runs": len(table.counts),
        "relays": len(relays),
        "bytes": sum(relay.bytes for relay in relays),
        "events": sum(sum(relay.events.values()) for relay in relays),
        "cells": cells,
        "figures": [
            {"id": f.id, "heading": f.heading, "caption": f.caption, "uri": uri(f.svg)}
            for f in figures
        ],
        "not_relaying": [role for role in table.roles if role not in table.relaying_roles],
        "times": _times(table, study, labels, number),
        "stage_names": [stage.value for stage in STAGES],
        "stages": _stages(table, labels, number),
        "waits": _waits(table, labels, number),
        "spikes": [
            {
                "role": row["role"],
                "label": labels[row["level"], row["variant"]],
                "seed": format_network(row["seed"], row["repeat"]).removeprefix("seed "),
                "period": number(row["period_s"]),
                "strength": number(row["strength"]),
                "noise": number(row["noise"]),
            }
            for row in sorted(table.spikes, key=lambda row: table.roles.index(row["role"]))
            if row["role"] in table.relaying_roles
        ],
        "positions": POSITIONS,
        "first_bytes": _first_bytes(table, labels, number),
        "fates": [
            {"meaning": meaning, "joined": joined, "cells": f"{n:,}", "share": f"{n / cells:.4%}"}
            for meaning, joined, n in fates
            if n
        ],
        "streams": stream_counts(table),
        "unended": sum(not relay.ended for relay in relays),
        "problems": [
            f"{run.run_id}, {relay.relay}: {relay.damage}"
            for run, counts in table.counts
            for relay in counts.relays
            if relay.damage
        ],
    }


def _times(
    table: TraceTable,
    study: Study,
    labels: dict[tuple[str, str], str],
    number: Callable[[float], str],
) -> list[dict[str, Any]]:
    means = [row for row in mean_times(table) if row["stage"] == Stage.TOTAL]
    parts = []
    for role in table.relaying_roles:
        groups = []
        for group in Group:
            rows = [
                {
                    "label": labels[row["level"], row["variant"]],
                    "published": False,
                    "circuits": number(row["circuits"]),
                    "cells": f"{row['count']:,}",
                    "numbers": [number(row[name]) for name in NUMBERS],
                }
                for row in means
                if (row["role"], row["group"]) == (role, group)
            ]
            rows += _published(study, role, group, number)
            groups.append({"name": group.value, "rows": rows})
        parts.append({"role": role, "groups": groups})
    return parts


def _published(
    study: Study, role: str, group: Group, number: Callable[[float], str]
) -> list[dict[str, Any]]:
    published = study.published_cell_times
    if published is None or published.role != role:
        return []
    rows = []
    for level in study.levels:
        times = published.levels.get(level.name, {}).get(GROUP_NAMES[group])
        if times is not None:
            count, *numbers_ms = astuple(times)
            rows.append(
                {
                    "label": f"{level.label}, {published.source}",
                    "published": True,
                    "circuits": number(float("nan")),
                    "cells": f"{count:,}",
                    # Do not round published numbers.
                    "numbers": [f"{value:,}" for value in numbers_ms],
                }
            )
    return rows


def _stages(
    table: TraceTable, labels: dict[tuple[str, str], str], number: Callable[[float], str]
) -> list[dict[str, Any]]:
    means = {
        (row["role"], row["level"], row["variant"], row["stage"]): row
        for row in mean_times(table)
        if row["group"] == Group.ALL
    }
    parts = []
    for role in table.relaying_roles:
        rows = []
        for (level, variant), label in labels.items():
            own = [means.get((role, level, variant, stage)) for stage in STAGES]
            rows.append(
                {
                    "label": label,
                    "cells": [
                        _stage_text(row, number) if row and row["count"] else number(float("nan"))
                        for row in own
                    ],
                }
            )
        parts.append({"role": role, "rows": rows})
    return parts


def _waits(
    table: TraceTable, labels: dict[tuple[str, str], str], number: Callable[[float], str]
) -> list[dict[str, Any]]:
    means = {(row["role"], row["level"], row["variant"]): row for row in mean_waits(table)}
    parts = []
    for role in dict.fromkeys(role for role, _, _ in means):
        own = [
            (label, row)
            for (level, variant), label in labels.items()
            if (row := means.get((role, level, variant)))
        ]
        rows = [
            {
                "label": label,
                "cells": f"{row['cells']:,}",
                "unsent": f"{row['unsent']:,}",
                "parts": [number(1000 * row[name]) for name in WAITS],
                "arrived": f"{row['arrived'] / row['cells']:.1%}",
            }
            for label, row in own
        ]
        parts.append({"role": role, "rows": rows})
    return parts


def _stage_text(row: Row, number: Callable[[float], str]) -> str:
    # The share is undefined if no time was spent inside.
    share = number(row["share"]) if np.isnan(row["share"]) else f"{row['share']:.0%}"
    return f"{number(row['mean_ms'])} ({number(row['median_ms'])}), {share}"


def _first_bytes(
    table: TraceTable, labels: dict[tuple[str, str], str], number: Callable[[float], str]
) -> list[dict[str, Any]]:
    result = []
    rows = pd.DataFrame(table.relay_times, columns=list(RELAY_TIME_COLUMNS))
    groups: Any = rows.groupby(["class", "level", "variant"])
    for (class_name, level, variant), own in groups:
        runs = own.drop_duplicates(["seed", "repeat"])
        times_ms = 1000 * own.groupby(["position", "stage"])["time_s"].agg(
            lambda times_s: times_s.to_numpy().mean()
        )
        ttfb_ms = 1000 * float(runs["ttfb_s"].mean())
        inside_ms = float(times_ms.sum())
        result.append(
            {
                "class_name": class_name,
                "label": labels[level, variant],
                "followed": int(runs["followed"].sum()),
                "streams": int(runs["streams"].sum()),
                "ttfb": number(ttfb_ms),
                "inside": number(inside_ms),
                "share": f"{inside_ms / ttfb_ms:.0%}",
                "places": [
                    " + ".join(number(times_ms[position, stage]) for stage in STAGES)
                    for position in POSITIONS
                ],
            }
        )
    return result
