"""Record tables are written in row groups; a run's records appear all together or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import Column, arrow_schema
from analysis.formats.compressed import most_bytes, require_size
from analysis.formats.durable import make_folder, put_in_place
from analysis.formats.scratch import scratch_folder

ROWS_PER_GROUP = 1 << 16

VALUE_BYTES = 8
"""Of a value as it is read: what a file's claims are checked by."""


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


def read_table(
    path: Path,
    columns: tuple[Column, ...] = (),
    *,
    names: Sequence[str] | None = None,
    missing: str | None = None,
    wrong: str | None = None,
) -> pa.Table:
    """Reads a Parquet file, and checks all of it: whatever it holds, nobody stumbles over it later.

    Args:
        path: of the file.
        columns: those that it has to have, of these types.
        names: which to read, if not all.
        missing: hint at what to do where it is missing.
        wrong: hint at what to do where it is no such table.

    Raises:
        AnalysisError: missing, damaged, larger than a file of its size plausibly is, or without
            some of the columns.
    """
    try:
        with pq.ParquetFile(path) as file:
            _require_plausible(file, path.stat().st_size)
            table = file.read(columns=names)
        table.validate(full=True)
        # Each row group has a dictionary of its own, which group_by() of Arrow refuses.
        table = table.unify_dictionaries()
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing", missing) from None
    # Of Arrow's own errors some are OSError, some ValueError, some KeyError.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise AnalysisError(f"{path} cannot be read: {str(error)[:200]}", wrong) from None
    require_columns(path, table, columns, wrong)
    return table


def require_columns(
    path: Path, table: pa.Table, columns: tuple[Column, ...], hint: str | None = None
) -> None:
    """Raises AnalysisError for a table without some of the columns, or with rows without values."""
    for column in columns:
        place = table.schema.get_field_index(column.name)
        if place < 0 or table.schema.field(place).type != column.type:
            raise AnalysisError(f"{path} has no column {column.name} of {column.type}", hint)
        if table.column(place).null_count and not column.optional:
            raise AnalysisError(f"{path} has rows without {column.name}", hint)


def _require_plausible(file: pq.ParquetFile, size_bytes: int) -> None:
    """Raises TooLargeError for a file that says it holds more than its size lets one expect."""
    facts = file.metadata
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    unpacked = max(0, *(group.total_byte_size for group in groups)) if groups else 0
    values = max(facts.num_rows, *(group.num_rows for group in groups), 0) * facts.num_columns
    require_size(max(unpacked, values * VALUE_BYTES), most_bytes(size_bytes))


@contextmanager
def atomic(out: Path) -> Iterator[Path]:
    """A scratch directory inside ``out``, whose files move to ``out`` when all went well."""
    make_folder(out)
    with scratch_folder(out, ".extract-") as directory:
        yield directory
        # parse.json goes last: whoever finds it finds the tables that belong to it.
        (out / files.PARSE_REPORT).unlink(missing_ok=True)
        (out / files.PROGRESS_TABLE).unlink(missing_ok=True)
        for path in sorted(directory.iterdir(), key=lambda p: p.suffix == ".json"):
            put_in_place(path, out / path.name)
