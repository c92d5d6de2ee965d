"""Tables as CSV text, for people and other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd


def csv_text(
    rows: pd.DataFrame | Iterable[Mapping[str, object]], columns: Sequence[str] | None = None
) -> str:
    """Return a table as CSV. Missing values are empty.

    Numbers are rounded to nine significant digits, so that all machines give the same text. No
    metric is that precise.

    Args:
        rows: a data frame, or one mapping for each line. Keys that are not in ``columns`` are
            ignored.
        columns: the columns to write, in order. If it is None, write all columns of ``rows``.
    """
    table = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    if columns is not None:
        table = table.reindex(columns=list(columns))
    return table.to_csv(index=False, float_format="%.9g", lineterminator="\n")
