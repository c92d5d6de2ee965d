"""CSV files for readers and other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd


def csv_text(
    rows: pd.DataFrame | Iterable[Mapping[str, object]], columns: Sequence[str] | None = None
) -> str:
    """Return a table as CSV. Missing values are empty.

    Numbers are rounded to nine digits, so that all machines give the same text. No metric is that
    precise.

    Args:
        rows: one mapping for each line, which may have more keys than there are columns.
        columns: in their order; None: those of the data frame.
    """
    table = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    if columns is not None:
        table = table.reindex(columns=list(columns))
    return table.to_csv(index=False, float_format="%.9g", lineterminator="\n")
