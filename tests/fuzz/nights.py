"""A history of nights, to be damaged."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]

from analysis.comparison.history import SCHEMA, TIME_SERIES
from analysis.formats.columns import HISTORY


def history() -> pa.Table:
    """Eight nights of one metric, of three seeds."""
    rows = [
        {
            **{column.name: "x" for column in HISTORY},
            **{"night": f"2026-01-0{night}", "metric": "ttfb_p50_s", "seeds": [1, 2, 3]},
            **{"values": [1.0, 1.1 + night / 10, 0.9], "estimate": 1.0, "records": str(night)},
        }
        for night in range(1, 9)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def primary(table: pa.Table) -> set[tuple[str, ...]]:
    """All time series of a table."""
    return {tuple(row[name] for name in TIME_SERIES) for row in table.to_pylist()}
