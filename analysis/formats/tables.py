"""Record tables are written in row groups; a run's records appear all together or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.formats import files
from analysis.formats.columns import Column, arrow_schema

ROWS_PER_GROUP = 1 << 16


class TableWriter:
    """Writes tables to a Parquet file in row groups of ``ROWS_PER_GROUP``."""

    def __init__(self, path: Path, columns: tuple[Column, ...]) -> None:
        self.waiting: list[pa.Table] = []
        self.rows = 0
        self.empty = arrow_schema(columns).empty_table()
        # Nothing in these settings depends on the clock or the machine.
        self.writer = pq.ParquetWriter(
            path, self.empty.schema, compression="zstd", compression_level=6, version="2.6"
        )

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None and self.rows:
            self._flush()
        self.writer.close()

    def add(self, table: pa.Table) -> None:
        """Takes the next rows."""
        self.waiting.append(table)
        self.rows += table.num_rows
        if self.rows >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables([self.empty, *self.waiting]).unify_dictionaries()
        self.waiting, self.rows = [], 0
        self.writer.write_table(table.combine_chunks(), row_group_size=table.num_rows)


@contextmanager
def atomic(out: Path) -> Iterator[Path]:
    """A scratch directory inside ``out``, whose files move to ``out`` when all went well."""
    with tempfile.TemporaryDirectory(prefix=".extract-", dir=out) as name:
        directory = Path(name)
        yield directory
        # parse.json goes last: whoever finds it finds the tables that belong to it.
        (out / files.PARSE_REPORT).unlink(missing_ok=True)
        (out / files.PROGRESS_TABLE).unlink(missing_ok=True)
        for path in sorted(directory.iterdir(), key=lambda p: p.suffix == ".json"):
            path.replace(out / path.name)
