"""The JSON files beside a run's record tables: what was read, and what could not be."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from pydantic_core import to_jsonable_python

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.files import RECORDS_FORMAT
from analysis.formats.format_model import FormatModel, Number
from analysis.formats.json_files import json_text, parse_json, read_as, read_json

TRACE_COUNTS_FORMAT: Final = 1
"""Version of celltrace.json and of the tables of cell traces."""

PARQUET_MAGIC = b"PAR1"
"""The first and the last bytes of each Parquet file."""

EXTRACT_AGAIN = "extract the run's records again"

MAX_NAMED_HOSTS = 3
"""How many hosts a note names."""

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Example:
    """A line that was not understood."""

    line: int = Field(description="its number in the log, from 1")
    reason: str = Field(description="what is wrong with it")
    text: str = Field(description="the line, or its beginning")


@dataclass
class FileProblems:
    """What was wrong with one log."""

    file: str = Field(description="path of the log in the run's directory")
    malformed_lines: int = Field(default=0, description="lines that were not understood")
    examples: list[Example] = Field(default_factory=list, description="the first of them")
    cut_last_line: bool = Field(default=False, description="whether the last line has no end")
    damage: str | None = Field(
        default=None,
        description="where its compressed data is broken, or that it ends before its run",
    )
    lost_streams: int = Field(
        default=0, description="streams that tgen counted and whose line is missing"
    )

    @property
    def host(self) -> str:
        """Name of the host that wrote the log."""
        return Path(self.file).parent.name

    @property
    def of_oniontrace(self) -> bool:
        """Whether it is a log of OnionTrace, which says nothing of a client's traffic."""
        return Path(self.file).name.startswith("oniontrace")

    @property
    def is_cut(self) -> bool:
        """Whether the log is not whole."""
        return self.cut_last_line or self.damage is not None

    @property
    def what(self) -> list[str]:
        """Each thing that is wrong, for people; without the examples."""
        parts = []
        if self.malformed_lines:
            parts.append(f"{self.malformed_lines} malformed lines")
        if self.cut_last_line:
            parts.append("the last line is cut")
        if self.damage:
            parts.append(self.damage)
        if self.lost_streams:
            parts.append(f"{self.lost_streams} streams without their line")
        return parts


@dataclass
class ParseReport:
    """parse.json: what one extraction read and what it could not read."""

    format: Literal[1] = Field(default=RECORDS_FORMAT, description="version of the records")
    files: int = Field(default=0, description="logs read")
    bytes: int = Field(default=0, description="bytes of them, not compressed")
    lines: int = Field(default=0, description="lines of them")
    heartbeat_lines: int = Field(default=0, description="lines with counters of bytes and streams")
    stream_lines: int = Field(default=0, description="lines of streams that ended")
    status_lines: int = Field(default=0, description="lines of how streams came along")
    other_lines: int = Field(default=0, description="lines without data")
    malformed_lines: int = Field(default=0, description="lines that were not understood")
    truncated_files: int = Field(
        default=0, description="logs that end within a line or before the run, or are broken"
    )
    clients: dict[str, int] = Field(default_factory=dict, description="class -> clients")
    clients_without_streams: list[str] = Field(
        default_factory=list, description="host names of clients that started no stream"
    )
    clients_without_heartbeats: list[str] = Field(
        default_factory=list, description="host names of clients that logged no counters"
    )
    streams: dict[str, dict[str, int]] = Field(
        default_factory=dict, description="class -> outcome -> streams"
    )
    passive_streams: int = Field(default=0, description="streams that servers logged")
    problems: list[FileProblems] = Field(
        default_factory=list, description="logs with which something was wrong"
    )
    classes: dict[str, str] = Field(
        default_factory=dict,
        description="host name -> traffic class, or empty text for a host that is not a client; of "
        "each host that is named above. Older records lack it",
    )
    tables: dict[str, str] = Field(
        default_factory=dict,
        description="name of each table -> its SHA-256. Older records lack it",
    )

    @property
    def clean(self) -> bool:
        """True if every line of every log was understood."""
        return not self.problems

    def add(self, problems: FileProblems) -> None:
        """Count a log that was read, and list it if something is wrong with it."""
        self.files += 1
        self.malformed_lines += problems.malformed_lines
        self.truncated_files += problems.is_cut
        if problems.what:
            self.problems.append(problems)

    def set_classes(self, classes: Mapping[str, str]) -> None:
        """Fill ``classes``. classes: host name of each client -> its class."""
        named = {
            *self.clients_without_streams,
            *self.clients_without_heartbeats,
            *(problems.host for problems in self.problems),
        }
        self.classes = {host: classes.get(host, "") for host in sorted(named)}

    def unknown_bytes_reason(self, class_name: str | None) -> str:
        """Return why it is not known how much a class read; "" if it is.

        class_name: None for all clients.
        """
        silent = [host for host in self.clients_without_heartbeats if self._is_of(host, class_name)]
        # A log that ends within its last line has all that was before.
        cut = [o.host for o in self._cut(class_name) if o.damage and not o.of_oniontrace]
        return "; ".join(
            f"{what} {self._of_clients(hosts, class_name)}"
            for what, hosts in (
                ("no heartbeats in the logs of", silent),
                ("incomplete logs of", cut),
            )
            if hosts
        )

    def not_counted(self, class_name: str | None = None) -> str:
        """Return what of the logs of a class did not count; "" if all of it did.

        class_name: None for all hosts, relays included.
        """
        parts = [self.unknown_bytes_reason(class_name)]
        idle = [host for host in self.clients_without_streams if self._is_of(host, class_name)]
        if idle:
            parts.append(f"no stream of {self._of_clients(idle, class_name)}")
        problems = [one for one in self.problems if self._is_of(one.host, class_name)]
        if lines := sum(one.malformed_lines for one in problems):
            parts.append(f"{lines} malformed lines")
        if lost := sum(one.lost_streams for one in problems):
            parts.append(f"{lost} streams without their line")
        for what, of_oniontrace in (("", False), (" of OnionTrace", True)):
            cut = [
                one.host
                for one in self._cut(class_name)
                if one.of_oniontrace == of_oniontrace and (of_oniontrace or not one.damage)
            ]
            if cut:
                parts.append(f"cut or damaged logs{what} on {first_names(cut)}")
        return "; ".join(filter(None, parts))

    def damaged_relays(self) -> list[str]:
        """Return the relays whose log of OnionTrace is damaged or ends early.

        None in older records, which do not say which hosts are relays.
        """
        return [
            one.host for one in self.problems if one.damage and self.classes.get(one.host) == ""
        ]

    def _cut(self, class_name: str | None) -> list[FileProblems]:
        return [one for one in self.problems if one.is_cut and self._is_of(one.host, class_name)]

    def _is_of(self, host: str, class_name: str | None) -> bool:
        # Older records do not say: the host may be of any class.
        return class_name is None or self.classes.get(host, class_name) == class_name

    def _of_clients(self, hosts: Sequence[str], class_name: str | None) -> str:
        count = sum(self.clients.values()) if class_name is None else self.clients.get(class_name)
        return f"{len(set(hosts))} of {count or 'unknown'} clients ({first_names(hosts)})"


def first_names(names: Sequence[str]) -> str:
    """Return the first of some names and how many more there are, for messages."""
    first = sorted(set(names))
    more = len(first) - MAX_NAMED_HOSTS
    named = ", ".join(first[:MAX_NAMED_HOSTS])
    return f"{named} and {more} more" if more > 0 else named


class TransferFacts(FormatModel):
    """transfer.json: what the analysis of two peers needs to know of the path between them."""

    format: Literal[1] = Field(default=1, exclude=True, description="version; not written")
    rtt_s: Number = Field(description="round-trip time of the path, without queues")
    sample_s: Number | None = Field(
        default=None, description="how often at most a log has a line of each kind"
    )


@dataclass(frozen=True)
class RelayCounts:
    """What one relay's trace held."""

    relay: str = Field(description="host name of the relay")
    role: str = Field(description="its role: exitguard, guard, exit or middle")
    bytes: int = Field(description="size of the trace")
    events: dict[str, int] = Field(description="name of an event -> records of it")
    fates: dict[str, int] = Field(
        description="name of analysis.celltrace.cells.Fate -> cells that met it"
    )
    repeated: int = Field(description="events that a cell had twice")
    channels: int = Field(description="channels that were opened")
    ended: bool = Field(description="whether Tor ended the trace itself")
    cut_bytes: int = Field(description="bytes of a last record that is not whole")
    malformed: int = Field(description="records that no Tor writes")
    first_malformed: int | None = Field(description="byte at which the first of them is")
    missing: int = Field(description="records that are missing, by their numbers")

    @property
    def damage(self) -> str | None:
        """What of the trace does not count, for people; None where all does."""
        if not (self.malformed or self.cut_bytes or self.missing or self.repeated):
            return None
        where = (
            "" if self.first_malformed is None else f", the first at byte {self.first_malformed}"
        )
        return (
            f"{self.malformed} records that no Tor writes{where}; {self.cut_bytes} bytes of a last "
            f"record; {self.missing} records missing; {self.repeated} events twice"
        )


@dataclass(frozen=True)
class TraceCounts:
    """celltrace.json: what a run's cell traces held."""

    relays: tuple[RelayCounts, ...] = Field(description="each traced relay")
    streams: dict[str, int] = Field(
        description="followed -> streams whose cells were followed; problem -> streams it stopped"
    )
    format: Literal[1] = Field(default=TRACE_COUNTS_FORMAT, description="version")

    def not_counted(self, role: str) -> str:
        """Return what of the traces of a role's relays did not count; "" if all of it did."""
        damaged = [relay for relay in self.relays if relay.role == role and relay.damage]
        return "; ".join(f"trace of {relay.relay}: {relay.damage}" for relay in damaged)


def write_beside_tables(path: Path, content: ParseReport | TransferFacts | TraceCounts) -> None:
    """Write one of these files; the same content gives the same bytes."""
    data: Any = to_jsonable_python(content)
    path.write_text(json_text(data), encoding="utf-8")


def write_parse_report(records: Path, report: ParseReport) -> None:
    """Write parse.json into a folder with all of its tables."""
    report.tables = table_hashes(records)
    write_beside_tables(records / files.PARSE_REPORT, report)


def table_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each table in a folder, by its name."""
    hashes = {}
    for path in sorted(folder.glob("[!.]*.parquet")):
        with path.open("rb") as file:
            hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def has_cut_files(records: Path) -> bool:
    """Return whether a file of a folder of records is empty or cut, as after a loss of power."""
    return any(map(_is_cut_json, records.glob("[!.]*.json"))) or any(
        map(_is_cut_table, records.glob("[!.]*.parquet"))
    )


def _is_cut_json(path: Path) -> bool:
    try:
        parse_json(path.read_bytes())
    except ValueError:
        return True
    return False


def _is_cut_table(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(PARQUET_MAGIC)))
        return file.read() != PARQUET_MAGIC


def read_parse_report(path: Path) -> ParseReport:
    """Reads a parse.json.

    Raises:
        AnalysisError: the file is missing, not JSON, or of another format version.
    """
    return read_as(ParseReport, path, "report of records", wrong=EXTRACT_AGAIN)


def read_records_format(records: Path) -> int:
    """The format of a run's records, whichever it is.

    Raises:
        AnalysisError: parse.json is missing, not JSON, or says no format.
    """
    path = records / files.PARSE_REPORT
    content = read_json(path, missing=EXTRACT_AGAIN, wrong=EXTRACT_AGAIN)
    number = content.get("format") if isinstance(content, dict) else None
    if not isinstance(number, int):
        raise AnalysisError(f"{path} says no record format", EXTRACT_AGAIN)
    return number


def read_transfer_facts(records: Path) -> TransferFacts:
    """What transfer.json says of the path.

    Raises:
        AnalysisError: missing, or without the time of a round trip.
    """
    path = records / files.TRANSFER_FACTS
    return read_as(TransferFacts, path, "description of a transfer", wrong="extract again")


def read_trace_counts(path: Path) -> TraceCounts:
    """Reads a celltrace.json.

    Raises:
        AnalysisError: it is missing or of another format.
    """
    return read_as(
        TraceCounts, path, "count of cell traces", missing=EXTRACT_AGAIN, wrong=EXTRACT_AGAIN
    )
