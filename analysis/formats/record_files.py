"""The JSON files next to a run's record tables, such as counts of what was read and ignored."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from pydantic_core import to_jsonable_python

from analysis.errors import AnalysisError
from analysis.formats import files
from analysis.formats.files import RECORDS_FORMAT
from analysis.formats.format_model import FormatModel, Number
from analysis.formats.json_files import json_text, parse_json, read_json, reader

TRACE_COUNTS_FORMAT: Final = 1
"""Version of celltrace.json and of the tables of cell traces."""

PARQUET_MAGIC = b"PAR1"
"""The first and the last bytes of each Parquet file."""

EXTRACT_AGAIN = "extract the run's records again"

MAX_NAMED_HOSTS = 3
"""Maximum number of hosts that a note lists."""

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Example:
    """A line that was not understood."""

    line: int = Field(description="its number in the log, from 1")
    reason: str = Field(description="what is wrong with it")
    text: str = Field(description="the line, or its beginning")


@dataclass
class FileProblems:
    """The problems of one log."""

    file: str = Field(description="path of the log in the run's directory")
    malformed_lines: int = Field(default=0, description="lines that were not understood")
    examples: list[Example] = Field(default_factory=list, description="the first of them")
    cut_last_line: bool = Field(default=False, description="whether the last line is incomplete")
    damage: str | None = Field(
        default=None,
        description="where its compressed data is damaged, or that it ends before its run",
    )
    lost_streams: int = Field(
        default=0, description="streams that tgen counted and whose line is missing"
    )

    @property
    def host(self) -> str:
        """Name of the host that wrote the log."""
        return Path(self.file).parent.name

    @property
    def is_oniontrace(self) -> bool:
        """True if OnionTrace wrote the log. Such a log has no traffic data of a client."""
        return Path(self.file).name.startswith("oniontrace")

    @property
    def is_cut(self) -> bool:
        """True if the log is incomplete."""
        return self.cut_last_line or self.damage is not None

    @property
    def descriptions(self) -> list[str]:
        """The problems as texts for readers, without the examples."""
        parts = (
            self.malformed_lines and f"{self.malformed_lines} malformed lines",
            self.cut_last_line and "the last line is cut",
            self.damage,
            self.lost_streams and f"{self.lost_streams} streams without their line",
        )
        return [part for part in parts if part]


@dataclass
class ParseReport:
    """parse.json: what one extraction read and what it could not read."""

    format: Literal[1] = Field(default=RECORDS_FORMAT, description="version of the records")
    files: int = Field(default=0, description="logs read")
    bytes: int = Field(default=0, description="bytes of them, not compressed")
    lines: int = Field(default=0, description="lines of them")
    heartbeat_lines: int = Field(default=0, description="lines with counters of bytes and streams")
    stream_lines: int = Field(default=0, description="lines of streams that ended")
    status_lines: int = Field(default=0, description="lines on the progress of streams")
    other_lines: int = Field(default=0, description="lines without data")
    malformed_lines: int = Field(default=0, description="lines that were not understood")
    truncated_files: int = Field(
        default=0, description="logs that end within a line or before the run, or are damaged"
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
    problems: list[FileProblems] = Field(default_factory=list, description="logs with problems")
    classes: dict[str, str] = Field(
        default_factory=dict,
        description="host name -> traffic class, or empty text for a host that is not a client; "
        "for each host in the fields above. Missing in older records",
    )
    tables: dict[str, str] = Field(
        default_factory=dict,
        description="name of each table -> its SHA-256. Missing in older records",
    )

    @property
    def clean(self) -> bool:
        """True if every log is complete and all of its lines were understood."""
        return not self.problems

    def add(self, problems: FileProblems) -> None:
        """Count a log that was read, and list it if it has problems."""
        self.files += 1
        self.malformed_lines += problems.malformed_lines
        self.truncated_files += problems.is_cut
        if problems.descriptions:
            self.problems.append(problems)

    def add_client(self, host: str, class_name: str, outcomes: Sequence[str], beats: int) -> None:
        """Count a client's streams by outcome, and list a client without streams or heartbeats.

        ``outcomes`` has one item for each stream; ``beats`` is the number of heartbeats.
        """
        of_class = self.streams[class_name]
        for outcome in outcomes:
            of_class[outcome] = of_class.get(outcome, 0) + 1
        if not outcomes:
            self.clients_without_streams.append(host)
        if not beats:
            self.clients_without_heartbeats.append(host)

    def set_classes(self, classes: Mapping[str, str]) -> None:
        """Set the class of each host that the report names; "" for a host that is not a client.

        classes: host name of each client -> its class.
        """
        named = {
            *self.clients_without_streams,
            *self.clients_without_heartbeats,
            *(problems.host for problems in self.problems),
        }
        self.classes = {host: classes.get(host, "") for host in sorted(named)}

    def unknown_bytes_reason(self, class_name: str | None) -> str:
        """Return why the bytes read by a class are unknown; "" if they are known.

        class_name: None for all clients.
        """
        silent = [
            host for host in self.clients_without_heartbeats if self._belongs_to(host, class_name)
        ]
        # A log in which only the last line is cut counts as complete: it lacks at most a heartbeat.
        cut = [o.host for o in self._cut(class_name) if o.damage and not o.is_oniontrace]
        return "; ".join(
            f"{what} {self._describe_clients(hosts, class_name)}"
            for what, hosts in (
                ("no heartbeats in the logs of", silent),
                ("incomplete logs of", cut),
            )
            if hosts
        )

    def not_counted(self, class_name: str | None = None) -> str:
        """Return what was ignored in the logs of a class; "" if nothing was.

        class_name: None for all hosts, including relays.
        """
        parts = [self.unknown_bytes_reason(class_name)]
        idle = [host for host in self.clients_without_streams if self._belongs_to(host, class_name)]
        if idle:
            parts.append(f"no stream of {self._describe_clients(idle, class_name)}")
        problems = [one for one in self.problems if self._belongs_to(one.host, class_name)]
        if lines := sum(one.malformed_lines for one in problems):
            parts.append(f"{lines} malformed lines")
        if lost := sum(one.lost_streams for one in problems):
            parts.append(f"{lost} streams without their line")
        cut = self._cut(class_name)
        for what, hosts in (
            ("", [one.host for one in cut if not one.is_oniontrace and not one.damage]),
            (" of OnionTrace", [one.host for one in cut if one.is_oniontrace]),
        ):
            if hosts:
                parts.append(f"cut or damaged logs{what} on {first_names(hosts)}")
        return "; ".join(filter(None, parts))

    def damaged_relays(self) -> list[str]:
        """Return the relays whose log of OnionTrace is damaged or ends early.

        Relays are the hosts without a traffic class. The list is empty for older records, which do
        not contain the classes.
        """
        return [
            one.host for one in self.problems if one.damage and self.classes.get(one.host) == ""
        ]

    def _cut(self, class_name: str | None) -> list[FileProblems]:
        return [
            one for one in self.problems if one.is_cut and self._belongs_to(one.host, class_name)
        ]

    def _belongs_to(self, host: str, class_name: str | None) -> bool:
        # Older records lack the classes, so the host may belong to any class.
        return class_name is None or self.classes.get(host, class_name) == class_name

    def _describe_clients(self, hosts: Sequence[str], class_name: str | None) -> str:
        count = sum(self.clients.values()) if class_name is None else self.clients.get(class_name)
        return f"{len(set(hosts))} of {count or 'unknown'} clients ({first_names(hosts)})"


def first_names(names: Sequence[str]) -> str:
    """Return a text with at most ``MAX_NAMED_HOSTS`` names, and the number of further names."""
    first = sorted(set(names))
    more = len(first) - MAX_NAMED_HOSTS
    named = ", ".join(first[:MAX_NAMED_HOSTS])
    return f"{named} and {more} more" if more > 0 else named


class TransferFacts(FormatModel):
    """transfer.json: the properties of the path between two peers, for the analysis."""

    format: Literal[1] = Field(default=1, exclude=True, description="version; not written")
    rtt_s: Number = Field(description="round-trip time of the path, without queues")
    sample_s: Number | None = Field(
        default=None, description="minimum time between two lines of a kind in a log"
    )


@dataclass(frozen=True)
class RelayCounts:
    """Counts of one relay's trace."""

    relay: str = Field(description="host name of the relay")
    role: str = Field(description="its role: exitguard, guard, exit or middle")
    bytes: int = Field(description="size of the trace")
    events: dict[str, int] = Field(description="name of an event -> records of it")
    fates: dict[str, int] = Field(
        description="name of analysis.celltrace.cells.Fate -> cells with this fate"
    )
    repeated: int = Field(description="repeated events of a cell")
    channels: int = Field(description="channels that were opened")
    ended: bool = Field(description="whether Tor ended the trace itself")
    cut_bytes: int = Field(description="bytes of an incomplete last record")
    malformed: int = Field(description="invalid records")
    first_malformed: int | None = Field(description="offset of the first of them in bytes")
    missing: int = Field(description="missing records, by their numbers")

    @property
    def damage(self) -> str | None:
        """A description of the ignored parts of the trace; None if nothing was ignored."""
        if not (self.malformed or self.cut_bytes or self.missing or self.repeated):
            return None
        where = (
            "" if self.first_malformed is None else f", the first at byte {self.first_malformed}"
        )
        return (
            f"{self.malformed} invalid records{where}; {self.cut_bytes} bytes of an incomplete "
            f"record; {self.missing} missing records; {self.repeated} repeated events"
        )


@dataclass(frozen=True)
class TraceCounts:
    """celltrace.json: the counts of a run's cell traces."""

    relays: tuple[RelayCounts, ...] = Field(description="each traced relay")
    streams: dict[str, int] = Field(
        description="followed -> streams whose cells were followed; problem -> streams with it"
    )
    format: Literal[1] = Field(default=TRACE_COUNTS_FORMAT, description="version")

    def not_counted(self, role: str) -> str:
        """Return what was ignored in the traces of a role's relays; "" if nothing was."""
        damaged = [relay for relay in self.relays if relay.role == role and relay.damage]
        return "; ".join(f"trace of {relay.relay}: {relay.damage}" for relay in damaged)


def write_beside_tables(path: Path, content: ParseReport | TransferFacts | TraceCounts) -> None:
    """Write a JSON file next to record tables. The same content gives the same bytes."""
    path.write_text(json_text(to_jsonable_python(content)), encoding="utf-8")


def write_parse_report(records: Path, report: ParseReport) -> None:
    """Write parse.json with the hashes of all tables, which must already be in the folder."""
    report.tables = table_hashes(records)
    write_beside_tables(records / files.PARSE_REPORT, report)


def table_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each table in a folder, by name."""
    hashes = {}
    for path in sorted(folder.glob("[!.]*.parquet")):
        with path.open("rb") as file:
            hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def has_cut_files(records: Path) -> bool:
    """Return whether a file in a folder of records is truncated, for example after a power loss.

    Another command can remove a file at the same time, to extract the records again. Such a missing
    file does not count as truncated.
    """
    return any(map(_is_cut, records.glob("[!.]*")))


def _is_cut(path: Path) -> bool:
    try:
        if path.suffix == ".json":
            parse_json(path.read_bytes())
        elif path.suffix == ".parquet":
            with path.open("rb") as file:
                size_bytes = file.seek(0, os.SEEK_END)
                file.seek(max(0, size_bytes - len(PARQUET_MAGIC)))
                return file.read() != PARQUET_MAGIC
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return False


read_parse_report = reader(ParseReport, "report of records", wrong=EXTRACT_AGAIN)
read_transfer_facts = reader(
    TransferFacts, "description of a transfer", files.TRANSFER_FACTS, wrong=EXTRACT_AGAIN
)
read_trace_counts = reader(
    TraceCounts, "count of cell traces", missing=EXTRACT_AGAIN, wrong=EXTRACT_AGAIN
)


def read_records_format(records: Path) -> int:
    """Return the version of a run's records, which may differ from ``RECORDS_FORMAT``.

    Raises:
        AnalysisError: parse.json is missing, not JSON, or contains no format.
    """
    path = records / files.PARSE_REPORT
    content = read_json(path, missing=EXTRACT_AGAIN, wrong=EXTRACT_AGAIN)
    number = content.get("format") if isinstance(content, dict) else None
    if not isinstance(number, int):
        raise AnalysisError(f"{path} does not contain a record format", EXTRACT_AGAIN)
    return number
