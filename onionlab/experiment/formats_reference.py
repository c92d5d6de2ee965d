"""docs/reference/formats.md: every file that is written by one part and read by another.

Made from the models and column tables of analysis/formats, by `onionlab schema --write`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import TypeAdapter

from analysis.comparison.run_sets import RunSet
from analysis.formats import columns, files
from analysis.formats.attempt import RunFailure, RunState
from analysis.formats.columns import Column
from analysis.formats.manifest import Manifest
from analysis.formats.pack_index import PackIndex
from analysis.formats.plan_file import PlanFile
from analysis.formats.record_files import ParseReport, TraceCounts, TransferFacts
from analysis.formats.run_files import Clients, HostRoles, PeerPair, RunClock, TracePlan
from analysis.formats.study import Study
from onionlab.experiment.published_formats import IN_FILE, PUBLISHED_SECTION, Described
from onionlab.tornet.model import Tornet

__all__ = ["formats_page"]

NOTE = "<!-- made by `onionlab schema --write` from the models: do not edit -->"
WIDTH = 100

UNITS = (
    ("_bytes_per_s", "bytes/s"),
    ("_bit_per_s", "bit/s"),
    ("unix_s", "s since 1970"),
    ("_unix_us", "µs since 1970"),
    ("at_s", "s since 1970"),
    ("_kib_per_s", "KiB/s"),
    ("_bytes", "bytes"),
    ("_ms", "ms"),
    ("_ns", "ns"),
    ("_s", "s"),
    ("_ticks", "µs/4"),
)
"""End of a name -> unit; the first that fits."""

UNITS_OF_NAMES = {"bytes": "bytes", "bytes_read": "bytes", "bytes_written": "bytes"} | {
    f"bytes_{what}": "bytes" for what in ("requested", "received")
}


RUN_FOLDER = "`runs/<id>/`"
RECORDS_FOLDER = f"`runs/<id>/{files.RECORDS}/`"
COMPOSED = "`onionlab/rundir/compose.py`"
NOT_WRITTEN = (
    "1. It does not stand in the file, whose bytes are part of the run's name; the first file of "
    "another version will have a key `format`."
)
OF_RECORDS = (
    f"{files.RECORDS_FORMAT}, also in the folder's name, `{files.RECORDS}`. Another number means "
    "other columns, or other numbers from the same logs: `onionlab analyse` extracts them again."
)
OF_TABLES = f"{OF_RECORDS} Each table has it in the metadata of its schema, as `format`."

SECTIONS: tuple[tuple[str, str, tuple[Described, ...]], ...] = (
    (
        "A run before it runs",
        "What a run's directory tells of itself. These bytes, those of the run's "
        "[other files](run-directory.md), the programs and the engine determine the run, and their "
        "hash is its name.",
        (
            Described(
                files.RUN,
                RUN_FOLDER,
                f"{COMPOSED}, `onionlab/rundir/peers.py`",
                "`analysis/records`",
                NOT_WRITTEN,
                RunClock,
            ),
            Described(
                files.CLIENTS,
                f"{RUN_FOLDER} of an experiment with Tor",
                COMPOSED,
                "`analysis/records`",
                NOT_WRITTEN,
                Clients,
            ),
            Described(
                files.PEERS,
                f"{RUN_FOLDER} of an experiment of kind `peers`, in place of `{files.CLIENTS}`",
                "`onionlab/rundir/peers.py`",
                "`analysis/records/transfer.py`",
                NOT_WRITTEN,
                PeerPair,
            ),
            Described(
                files.TRACE_PLAN,
                f"{RUN_FOLDER}, where relays write cell traces",
                "`onionlab/rundir/trace.py`",
                "`analysis/celltrace/cell_tables.py`",
                NOT_WRITTEN,
                TracePlan,
            ),
            Described(
                files.HOST_ROLES,
                f"{RUN_FOLDER} of a network of tornettools",
                "`onionlab/rundir`",
                "`analysis/records`",
                NOT_WRITTEN,
                HostRoles,
            ),
        ),
    ),
    (
        "A run while it is made, and after",
        "",
        (
            Described(
                files.PROGRESS,
                "`runs/.partial/<id>/`, while the run is made",
                "`onionlab/runs/runner.py`",
                "`onionlab/runs/workflow/drive.py`, which shows it",
                f"1, {IN_FILE}",
                RunState,
            ),
            Described(
                files.ERROR,
                "`runs/.failed/<id>/`",
                "`onionlab/runs/runner.py`",
                "`onionlab/runs/workflow/drive.py`, which tells it",
                f"1, {IN_FILE}",
                RunFailure,
            ),
            Described(
                files.MANIFEST,
                f"{RUN_FOLDER}; a directory without it is no finished run",
                "`onionlab/runs/runner.py`",
                "`onionlab/runs` (provenance of a study, packs), `onionlab/questions/open_sets.py`",
                f"1, {IN_FILE}",
                Manifest,
            ),
        ),
    ),
    (
        "A run's records",
        "The numbers that all tables and figures come from. The same logs give the same bytes. "
        "[Metrics](metrics.md) says what is computed of them.",
        (
            Described(
                files.STREAMS_TABLE,
                RECORDS_FOLDER,
                "`analysis/records/extract.py`",
                "`analysis/measures/run_data.py`",
                OF_TABLES,
                columns.STREAMS,
                "each stream that a client started",
            ),
            Described(
                files.GOODPUT_TABLE,
                RECORDS_FOLDER,
                "`analysis/records/extract.py`",
                "`analysis/measures/run_data.py`",
                OF_TABLES,
                columns.GOODPUT,
                "each heartbeat of each client, which ends an interval",
            ),
            Described(
                files.PROGRESS_TABLE,
                f"{RECORDS_FOLDER}, where logs tell how streams came along",
                "`analysis/records/extract.py`",
                "`analysis/measures/run_data.py`",
                OF_TABLES,
                columns.PROGRESS,
                "a time at which payload of a stream came",
            ),
            Described(
                files.PERF_TABLE,
                f"{RECORDS_FOLDER} of a network of tornettools",
                "`analysis/records/perf.py`",
                "`analysis/measures/perf_data.py`",
                OF_TABLES,
                columns.PERF,
                "each stream of a perf client that ended",
            ),
            Described(
                files.CIRCUITS_TABLE,
                f"{RECORDS_FOLDER} of a network of tornettools, where OnionTrace ran",
                "`analysis/records/oniontrace.py`",
                "`analysis/measures/perf_data.py`",
                OF_TABLES,
                columns.CIRCUITS,
                "each circuit of each Tor that OnionTrace watched",
            ),
            Described(
                files.RELAY_BYTES_TABLE,
                f"beside `{files.CIRCUITS_TABLE}`",
                "`analysis/records/oniontrace.py`",
                "`analysis/measures/perf_data.py`",
                OF_TABLES,
                columns.RELAY_BYTES,
                "each second of each relay and authority that OnionTrace watched",
            ),
            Described(
                files.PEERS_TABLE,
                f"{RECORDS_FOLDER} of an experiment of kind `peers`, in place of the tables above",
                "`analysis/records/transfer.py`",
                "`analysis/measures/run_data.py`",
                OF_TABLES,
                columns.PEERS,
                "each line of the peers' logs that carries data",
            ),
            Described(
                files.TRANSFER_FACTS,
                f"beside `{files.PEERS_TABLE}`",
                "`analysis/records/transfer.py`",
                "`analysis/measures/run_data.py`",
                f"{OF_RECORDS} It does not stand in the file.",
                TransferFacts,
            ),
            Described(
                files.CELLS_TABLE,
                f"{RECORDS_FOLDER}, where relays wrote cell traces",
                "`analysis/celltrace/cell_tables.py`",
                "`analysis/celltrace`, `analysis/measures/run_data.py`",
                "1, in the metadata of the table's schema, as `format`; else as of the records.",
                columns.CELLS,
                "each cell at each traced relay",
            ),
            Described(
                files.RELAY_TIME_TABLE,
                f"beside `{files.CELLS_TABLE}`",
                "`analysis/celltrace/cell_tables.py`",
                "`analysis/celltrace/summaries.py`",
                "1, in the metadata of the table's schema, as `format`; else as of the records.",
                columns.RELAY_TIME,
                "each stay of a stream's first cells at a relay, or for what kept it from being "
                "followed",
            ),
            Described(
                files.ARRIVALS_TABLE,
                f"beside `{files.CELLS_TABLE}`; records of older programs are without it",
                "`analysis/celltrace/cell_tables.py`",
                "`analysis/measures/run_data.py`, `analysis/celltrace/summaries.py`",
                "1, in the metadata of the table's schema, as `format`; else as of the records.",
                columns.ARRIVALS,
                "each RELAY cell that one traced relay sent and another one read",
            ),
            Described(
                files.TRACE_COUNTS,
                f"beside `{files.CELLS_TABLE}`",
                "`analysis/celltrace/cell_tables.py`",
                "`analysis/celltrace/summaries.py`, `onionlab analyse`",
                f"1, {IN_FILE}",
                TraceCounts,
            ),
            Described(
                files.PARSE_REPORT,
                f"{RECORDS_FOLDER}; written last: where it is, the tables are",
                "`analysis/records/extract.py`",
                "`analysis/measures/run_data.py`, `analysis/pages/report.py`, `onionlab analyse`",
                f"{OF_RECORDS} It stands in `format`.",
                ParseReport,
            ),
        ),
    ),
    PUBLISHED_SECTION,
    (
        "An experiment's results",
        "Experiment files have [a page of their own](experiments.md), and so have "
        "[claims](claims.md).",
        (
            Described(
                files.PLAN,
                "`results/<name>/`",
                "`onionlab/runs/plan.py`",
                "`onionlab/runs` (each job), and the commands that take a finished experiment",
                f"1, {IN_FILE} A plan is made anew by the command that made it.",
                PlanFile,
            ),
            Described(
                files.STUDY,
                f"`results/<name>/`; in packs `{files.STUDIES}/<name>.json`",
                "`onionlab/runs/study_file.py`, `onionlab/questions/engine_comparison.py`",
                "`analysis`: it is all that the report is told of an experiment",
                f"1, {IN_FILE}",
                Study,
            ),
        ),
    ),
    (
        "Networks of tornettools",
        "[Import networks](../how-to/import-networks.md) says how they come here. Beside the "
        "record lie the files that it names, by the paths that a run directory has them at.",
        (
            Described(
                files.TORNET,
                "`networks/<name>/<seed>/`; a directory without it is no network",
                "`onionlab import-network` (`onionlab/tornet/keeping.py`)",
                "`onionlab/tornet`",
                f"1, {IN_FILE}",
                Tornet,
            ),
        ),
    ),
    (
        "Several runs together",
        "",
        (
            Described(
                files.PACK_INDEX,
                "first member of a pack: a tar archive compressed by xz, with the files of each "
                f"run, `<id>/<path>`, and the studies that the runs are of, `{files.STUDIES}/`",
                "`onionlab pack` (`onionlab/runs/packing.py`)",
                "`onionlab unpack`, `compare` and `figures`",
                f"1, or 2 for a published pack, {IN_FILE} It stands for the whole pack.",
                PackIndex,
            ),
            Described(
                files.RUN_SET,
                "`results/<name>/` of an import; `nightly/baselines/<experiment>-<key>.set.json`",
                "`onionlab import`, `onionlab nightly`",
                "`onionlab compare`, `onionlab nightly`",
                f"1, {IN_FILE}",
                RunSet,
            ),
            Described(
                files.HISTORY,
                "`nightly/`",
                "`onionlab nightly` (`analysis/comparison/history.py`)",
                "`onionlab nightly`, which looks for steps in it",
                f"{columns.HISTORY_FORMAT}, in the metadata of the table's schema, as `format`. A "
                "history of another number is refused.",
                columns.HISTORY,
                "each night, experiment, level, variant, class and metric",
            ),
        ),
    ),
)


def formats_page() -> str:
    """The page, as text ready to be written."""
    parts = [
        "# File formats",
        NOTE,
        _paragraph(
            "Each format has one model in `analysis/formats` that writes it and reads it, and this "
            "page is made from these models. Keys that a program does not know are passed over, so "
            "that a key may be added under the same version. Names of files stand in "
            "`analysis/formats/files.py`. JSON files are UTF-8 with sorted keys; tables are "
            "Parquet, compressed by zstd where nothing else is said. A `[]` in a key stands for "
            "each item of a list, and NAME for each key of a mapping."
        ),
    ]
    for title, about, formats in SECTIONS:
        parts += [f"## {title}", *([_paragraph(about)] if about else [])]
        for described in formats:
            parts += _section(described)
    return "\n\n".join(parts) + "\n"


def _section(described: Described) -> Iterator[str]:
    is_table = isinstance(described.model, tuple)
    yield f"### {described.name}"
    first = str(described.model.__doc__).partition("\n")[0]
    about = f"A row for {described.rows}." if is_table else first.partition(": ")[2]
    yield _paragraph(_sentence(about))
    yield "\n".join(
        _item(f"{name}: {text}")
        for name, text in (
            ("Where", described.lies),
            ("Written by", described.writer),
            ("Read by", described.reader),
            ("Version", described.version),
        )
    )
    if is_table:
        yield _table(("Column", "Type", "Unit", "Meaning"), map(_column, described.model))
    else:
        schema = TypeAdapter(described.model).json_schema()
        rows = _keys(schema, schema.get("$defs", {}), "")
        yield _table(("Key", "Value", "Unit", "Meaning"), rows)


def _column(column: Column) -> tuple[str, ...]:
    kind = str(column.type)
    if kind.startswith("dictionary<"):
        kind = "string"
    kind = kind.replace("<item: ", " of ").replace("<element: ", " of ").rstrip(">")
    meaning = _sentence(column.meaning or column.description)
    return f"`{column.name}`", kind, _unit(column.name), meaning


def _keys(schema: dict[str, Any], defs: dict[str, Any], path: str) -> Iterator[tuple[str, ...]]:
    """A row for each key of a model and of those below it."""
    if "properties" not in schema:
        below = _value(schema["additionalProperties"])
        yield f"`{path}NAME`", below, "", _meaning(schema).partition(": ")[2]
        return
    for name, key in schema["properties"].items():
        if "not written" in key.get("description", ""):
            continue
        value = _value(key)
        # Where nothing stands for something else, null is the default, and the meaning tells it.
        default = key.get("default")
        if default not in (None, "", [], {}) and "const" not in key:
            value += f"; {json.dumps(default)} if absent"
        yield f"`{path}{name}`", value, _unit(name), _meaning(key)
        yield from _below(key, defs, f"{path}{name}")


def _below(key: dict[str, Any], defs: dict[str, Any], path: str) -> Iterator[tuple[str, ...]]:
    for choice in key.get("anyOf", [key]):
        if "$ref" in choice:
            yield from _keys(defs[choice["$ref"].rpartition("/")[2]], defs, f"{path}.")
        elif isinstance(choice.get("items"), dict):
            yield from _below(choice["items"], defs, f"{path}[]")
        elif isinstance(choice.get("additionalProperties"), dict):
            yield from _below(choice["additionalProperties"], defs, f"{path}.NAME")


def _value(key: Any) -> str:
    """What stands at a key, in words."""
    if "const" in key:
        return json.dumps(key["const"])
    if "anyOf" in key:
        choices = dict.fromkeys(_value(choice) for choice in key["anyOf"])
        if "number" in choices:
            choices.pop("whole number", None)
        return ", or ".join(choices)
    if "$ref" in key:
        return "mapping"
    kind = key.get("type")
    if kind == "array":
        return "list" if "items" not in key else f"list of: {_value(key['items'])}"
    if kind == "object":
        below = key.get("additionalProperties")
        names = " or ".join(key.get("propertyNames", {}).get("enum", [])) or "names"
        is_any = below in (None, True)
        return "mapping" if is_any else f"mapping of {names} to: {_value(below)}"
    words = {"integer": "whole number", "string": "text", "boolean": "true or false"}
    return words.get(str(kind), str(kind or "anything"))


def _meaning(key: dict[str, Any]) -> str:
    # Outside of code, Markdown takes <name> for a tag.
    return _sentence(str(key["description"])).replace("<", "&lt;")


def _unit(name: str) -> str:
    ends = (unit for end, unit in UNITS if name.endswith(end))
    return UNITS_OF_NAMES.get(name) or next(ends, "")


def _sentence(text: str) -> str:
    """With a capital letter, but for the names of columns and keys."""
    if text.startswith("tgen"):
        return f"TG{text[2:]}"
    return text if "_" in text.split()[0] else text[:1].upper() + text[1:]


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])
