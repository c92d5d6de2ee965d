"""Writing of record tables in row groups, and reading with checks of all values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from analysis.arrays import Floats
from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import Column, arrow_schema
from analysis.formats.compressed import max_content_bytes, require_size
from analysis.formats.durable import make_folder, put_in_place
from analysis.formats.parquet_pages import require_plausible
from analysis.formats.scratch import scratch_folder

ROWS_PER_GROUP = 1 << 16

CHARACTER_BYTES = 4
"""Size of a character in NumPy's arrays of strings."""

SHOWN_VALUE = 40
"""Maximum number of characters of a damaged value in a message."""

DAMAGED_HINT = (
    "extract the run's records again (make analyse NAME=...); if its logs are gone, get the run "
    "again"
)


def build_table(columns: tuple[Column, ...], values: Mapping[str, Any]) -> pa.Table:
    """Return a table from the values of its columns. A string in ``values`` is for all rows."""
    schema = arrow_schema(columns)
    rows = next(len(one) for one in values.values() if not isinstance(one, str))
    arrays = [
        pa.array([one] * rows if isinstance(one, str) else one, field.type)
        for field, one in ((field, values[field.name]) for field in schema)
    ]
    return pa.table(arrays, schema=schema)


class TableWriter:
    """A writer of tables to a Parquet file.

    Each row group except the last has at least ``ROWS_PER_GROUP`` rows.
    """

    def __init__(self, path: Path, columns: tuple[Column, ...]) -> None:
        self.waiting: list[pa.Table] = []
        self.rows = 0
        self.empty = arrow_schema(columns).empty_table()
        # The same tables give the same bytes: no setting depends on the clock or the machine.
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
        """Append rows."""
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
    layout: tuple[Column, ...],
    *others: tuple[Column, ...],
    missing: str | None = None,
    wrong: str = DAMAGED_HINT,
) -> pa.Table:
    """Read the columns of a layout from a Parquet file, and check all of their values.

    Other columns are ignored.

    Args:
        path: the file.
        layout: the columns, with types, that the file must have.
        others: other layouts, which are tried in turn if the file lacks a column of ``layout``.
        missing: hint if the file is missing.
        wrong: hint if the file is damaged or of another kind.

    Raises:
        AnalysisError: the file is missing, damaged, implausibly large when decompressed, lacks a
            column, or has an invalid value.
    """
    try:
        with pq.ParquetFile(path) as file:
            columns = _fitting(path, file.schema_arrow, (layout, *others), wrong)
            metadata = file.metadata
        require_plausible(path)
        names = [column.name for column in columns]
        texts = [column.name for column in columns if column.type == pa.string()]
        # Read strings as dictionaries: a string that occurs in many rows is stored only once.
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts) as file:
            table = _read_columns(file, names, max_content_bytes(path.stat().st_size))
        table.validate(full=True)
        # Each row group has its own dictionary. Arrow's group_by() needs one for the whole table.
        table = table.unify_dictionaries()
        for place, column in enumerate(columns):
            if column.name in texts or pa.types.is_dictionary(column.type):
                _require_plausible_texts(table[place], path.stat().st_size)
            if column.name in texts:
                field = table.schema.field(place).with_type(pa.string())
                table = table.set_column(place, field, table[place].cast(pa.string()))
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing", missing) from None
    # Some of Arrow's own errors are OSError, some ValueError, some KeyError.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise AnalysisError(f"{path} cannot be read: {str(error)[:200]}", wrong) from None
    require_values(path, table, columns, wrong)
    return table


def texts(table: pa.Table, name: str) -> NDArray[np.str_]:
    """Return a column of strings, shape (n,); "" for null."""
    values = table[name].cast(pa.string()).to_pylist()
    return np.asarray([value or "" for value in values], dtype=np.str_)


def floats(table: pa.Table, name: str) -> Floats:
    """Return a column of numbers as floats of shape (n,), NaN for null."""
    # Allow that large byte counts are rounded to the nearest double.
    column = table[name].cast(pa.float64(), safe=False).combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _read_columns(file: pq.ParquetFile, names: Sequence[str], max_bytes: int) -> pa.Table:
    """Read columns in batches, because the footer can state a wrong number of rows.

    Raises TooLargeError if the stated or the actual size of the columns exceeds ``max_bytes``.
    """
    # Check the stated size first, because Arrow decompresses each page as a whole. Use the sizes of
    # row groups, because PyArrow ends the process if the metadata of columns are damaged in certain
    # ways.
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    require_size(sum(group.total_byte_size for group in groups), max_bytes)
    size_bytes = 0
    batches = []
    for batch in file.iter_batches(ROWS_PER_GROUP, columns=names):
        size_bytes += batch.nbytes
        require_size(size_bytes, max_bytes)
        batches.append(batch)
    schema = None if batches else file.schema_arrow
    return pa.Table.from_batches(batches, schema).select(names)


def _fitting(
    path: Path, schema: pa.Schema, layouts: Sequence[tuple[Column, ...]], hint: str
) -> tuple[Column, ...]:
    """Return the first layout whose columns a file has. Raises AnalysisError if there is none."""
    types = dict(zip(schema.names, schema.types, strict=True))
    lacking: list[Column] = []
    for layout in layouts:
        lacking = [column for column in layout if types.get(column.name) != column.type]
        if not lacking:
            return layout
    raise AnalysisError(f"{path} has no column {lacking[0].name} of {lacking[0].type}", hint)


def _require_plausible_texts(column: pa.ChunkedArray, size_bytes: int) -> None:
    """Raise TooLargeError for strings that would need too much memory as a NumPy array."""
    dictionary = column.chunk(0).dictionary if column.num_chunks else pa.array([], pa.string())
    longest = pc.max(pc.binary_length(dictionary)).as_py() or 0
    require_size(len(column) * longest * CHARACTER_BYTES, max_content_bytes(size_bytes))


def require_values(
    path: Path, table: pa.Table, columns: tuple[Column, ...], hint: str = DAMAGED_HINT
) -> None:
    """Check the values of a table's columns.

    Raises:
        AnalysisError: a value is impossible (the message names its column, and its row from 1), or
            several rows have the same key.
    """
    for column in columns:
        for why, wrong in _impossible(table, column):
            if pc.any(wrong).as_py():
                row = pc.index(wrong, value=True).as_py()
                value = table[column.name][row].as_py()
                shown = "null" if value is None else repr(value)[:SHOWN_VALUE]
                raise AnalysisError(
                    f"{path} is damaged: column {column.name}, row {row + 1}: {shown} {why}", hint
                )
    key = [column.name for column in columns if column.is_key]
    if key and table.group_by(key).aggregate([]).num_rows < table.num_rows:
        raise AnalysisError(f"{path} is damaged: several rows have the same {', '.join(key)}", hint)


def _impossible(table: pa.Table, column: Column) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yield a description and a mask for each kind of fault; the mask is true in faulty rows."""
    values = table[column.name]
    if not column.optional:
        yield "but each row must have a value", values.is_null()
    if column.is_number:
        low, high = (pa.scalar(bound) for bound in column.bounds)
        inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        # This also rejects NaN.
        yield (
            "is not from {:g} to {:g}".format(*column.bounds),
            pc.invert(inside).fill_null(fill_value=False),
        )
    if column.not_before:
        before = pc.less(values, table[column.not_before])
        yield f"is less than {column.not_before}", before.fill_null(fill_value=False)
    if column.choices:
        known = pc.is_in(values.cast(pa.string()), value_set=pa.array(column.choices, pa.string()))
        yield f"is not one of: {', '.join(column.choices)}", pc.invert(known)


@contextmanager
def atomic(out: Path) -> Iterator[Path]:
    """Yield a scratch directory inside ``out``, and move its files to ``out`` on success."""
    make_folder(out)
    with scratch_folder(out, ".extract-") as directory:
        yield directory
        # Move parse.json last: if it exists, the tables that belong to it exist as well. Remove the
        # table of progress, because the new records may have none.
        (out / files.PARSE_REPORT).unlink(missing_ok=True)
        (out / files.PROGRESS_TABLE).unlink(missing_ok=True)
        for path in sorted(directory.iterdir(), key=lambda p: p.suffix == ".json"):
            put_in_place(path, out / path.name)
