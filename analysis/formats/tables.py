"""Record tables are written in row groups; a run's records appear all together or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.columns import Column, arrow_schema
from analysis.formats.compressed import most_bytes, require_size
from analysis.formats.durable import make_folder, put_in_place
from analysis.formats.parquet_pages import require_plausible
from analysis.formats.scratch import scratch_folder

ROWS_PER_GROUP = 1 << 16

CHARACTER_BYTES = 4
"""Size of a character in NumPy's arrays of text."""

SHOWN_VALUE = 40
"""Length at which a damaged value is cut in a message."""

DAMAGED_HINT = (
    "extract the run's records again (make analyse NAME=...); where its logs are gone, get the run "
    "again"
)


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
    layout: tuple[Column, ...],
    *others: tuple[Column, ...],
    missing: str | None = None,
    wrong: str = DAMAGED_HINT,
) -> pa.Table:
    """Read the columns of a layout from a Parquet file, and check all of their values.

    Other columns are not read.

    Args:
        path: of the file.
        layout: the file has to have all of these columns, of these types.
        others: layouts that are tried in turn if it lacks one of them.
        missing: hint at what to do where it is missing.
        wrong: hint at what to do where it is damaged, or no such table.

    Raises:
        AnalysisError: missing, damaged, larger than a file of its size plausibly is, without some
            of the columns, or with a value that its column cannot have.
    """
    try:
        with pq.ParquetFile(path) as file:
            columns = _fitting(path, file.schema_arrow, (layout, *others), wrong)
            metadata = file.metadata
        names = [column.name for column in columns]
        require_plausible(path)
        texts = [column.name for column in columns if column.type == pa.string()]
        # As a dictionary, a long text that many rows have takes its memory once.
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts) as file:
            table = file.read(columns=names).select(names)
        table.validate(full=True)
        # Each row group has a dictionary of its own, which group_by() of Arrow refuses.
        table = table.unify_dictionaries()
        for place, column in enumerate(columns):
            if column.name in texts or pa.types.is_dictionary(column.type):
                _require_plausible_texts(table[place], path.stat().st_size)
            if column.name in texts:
                field = table.schema.field(place).with_type(pa.string())
                table = table.set_column(place, field, table[place].cast(pa.string()))
    except FileNotFoundError:
        raise AnalysisError(f"{path} is missing", missing) from None
    # Of Arrow's own errors some are OSError, some ValueError, some KeyError.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise AnalysisError(f"{path} cannot be read: {str(error)[:200]}", wrong) from None
    require_values(path, table, columns, wrong)
    return table


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
    """Raise TooLargeError for texts that would take too much memory as an array of NumPy."""
    dictionary = column.chunk(0).dictionary if column.num_chunks else pa.array([], pa.string())
    longest = pc.max(pc.binary_length(dictionary)).as_py() or 0
    require_size(len(column) * longest * CHARACTER_BYTES, most_bytes(size_bytes))


def require_values(
    path: Path, table: pa.Table, columns: tuple[Column, ...], hint: str = DAMAGED_HINT
) -> None:
    """Check a table against what its columns may hold.

    Raises:
        AnalysisError: a value is not possible; names the column and the first such row, from 1.
            Or several rows have the same key.
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
    """Yield each possible fault of a value, for messages, and the rows that have it."""
    values = table[column.name]
    if not column.optional:
        yield "where each row has a value", values.is_null()
    if column.is_number:
        low, high = (pa.scalar(bound) for bound in column.bounds)
        inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        # NaN is not inside either.
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
    """A scratch directory inside ``out``, whose files move to ``out`` when all went well."""
    make_folder(out)
    with scratch_folder(out, ".extract-") as directory:
        yield directory
        # parse.json goes last: whoever finds it finds the tables that belong to it.
        (out / files.PARSE_REPORT).unlink(missing_ok=True)
        (out / files.PROGRESS_TABLE).unlink(missing_ok=True)
        for path in sorted(directory.iterdir(), key=lambda p: p.suffix == ".json"):
            put_in_place(path, out / path.name)
