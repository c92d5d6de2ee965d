"""Files in a run's directory that describe its clock, its hosts, and its cell traces.

The run's identity contains hashes of these files, so writing a version would change the identity.
Therefore files of version 1 contain no version, and a file without a version has version 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, RootModel, StringConstraints, model_validator

from analysis.formats import files
from analysis.formats.format_model import FormatModel, Number
from analysis.formats.json_files import json_text, read_as, reader

Name = Annotated[str, StringConstraints(min_length=1)]


class RunClock(FormatModel):
    """run.json: the start and end of the run's simulated time."""

    format: Literal[1] = Field(default=1, exclude=True, description="version; not written")
    epoch_unix_s: Number = Field(description="Unix time at which simulated time is 0")
    stop_s: Number | None = Field(default=None, description="simulated time at which the run ends")

    @property
    def epoch_us(self) -> int:
        """Start of simulated time, as Unix time in microseconds."""
        return round(self.epoch_unix_s * 1_000_000)

    def early_end(self, last_us: int, interval_s: float) -> str | None:
        """Return a message if a log ends before the run; otherwise, or without ``stop_s``, None.

        Args:
            last_us: Unix time of the log's last line, in microseconds.
            interval_s: maximum time between two lines of the log.
        """
        last_s = (last_us - self.epoch_us) / 1e6
        if self.stop_s is None or last_s >= self.stop_s - interval_s:
            return None
        return f"it ends at {last_s:.0f} s, and the run at {self.stop_s:g} s"


class Clients(RootModel[dict[Name, Name]]):
    """clients.json: host name of each client -> its traffic class."""

    FORMAT: ClassVar[int] = 1

    root: dict[Name, Name] = Field(min_length=1, description="host name -> traffic class")


class PeerPair(FormatModel):
    """peers.json: the two hosts of a run of libtorrent peers, and the path between them."""

    format: Literal[1] = Field(default=1, exclude=True, description="version; not written")
    seed: Name = Field(description="host name of the peer that has the data")
    downloader: Name = Field(description="host name of the peer that fetches it")
    rtt_s: Number = Field(description="round-trip time of the path, without queues")
    sample_s: Number = Field(description="minimum time between two lines of a kind in a log")


class TracedHost(FormatModel):
    """The role and the address of one host, for the analysis of cell traces."""

    role: str = Field(description="its role: guard, middle, exit, exitguard, client, server, ...")
    address: str = Field(description="its IPv4 address")


class TracePlan(FormatModel):
    """trace.json: the traced relays, and the roles and addresses of hosts."""

    format: Literal[1] = Field(default=1, exclude=True, description="version; not written")
    epoch_unix_s: Number = Field(description="Unix time at which simulated time is 0")
    file: Name = Field(description="name of the trace in each traced host's folder")
    traced: tuple[Name, ...] = Field(min_length=1, description="host names of the traced relays")
    hosts: dict[str, TracedHost] = Field(description="host name -> the host, of all hosts")

    @model_validator(mode="after")
    def _traced_hosts_are_known(self) -> Self:
        unknown = [name for name in self.traced if name not in self.hosts]
        if unknown:
            raise ValueError(f"the traced host {unknown[0]} is not among hosts")
        return self


class RoleOfHost(FormatModel):
    """The role of one host, and whether OnionTrace runs there."""

    role: Name = Field(description="its role, as in tornet.json: guard, perf-client, ...")
    oniontrace: bool = Field(
        default=False,
        description="whether OnionTrace, or a program with the same output, runs there",
    )


class HostRoles(FormatModel):
    """hosts.json: the roles of hosts in a tornettools network, and the hosts with OnionTrace."""

    format: Literal[1] = Field(default=1, exclude=True, description="version; not written")
    hosts: dict[Name, RoleOfHost] = Field(min_length=1, description="host name -> the host")


def written(file: FormatModel | Clients) -> bytes:
    """Return the bytes of a file in a run's directory. They are part of the run's identity."""
    return json_text(file.model_dump(mode="json", exclude_none=True)).encode()


read_clock = reader(RunClock, "clock of a run", files.RUN)
read_peers = reader(PeerPair, "description of two peers", files.PEERS)
read_trace_plan = reader(TracePlan, "plan of cell traces", files.TRACE_PLAN)
# Each function above takes a run's directory and reads one file in it. It raises AnalysisError if
# the file is missing, not JSON, or not valid.


def read_clients(run_directory: Path) -> dict[str, str]:
    """Read clients.json of a run: host name -> class. Raises AnalysisError like `read_clock`."""
    return read_as(Clients, run_directory / files.CLIENTS, "map of clients to classes").root


def read_host_roles(run_directory: Path) -> dict[str, RoleOfHost]:
    """Read hosts.json of a run: host name -> role. Raises AnalysisError like `read_clock`."""
    return read_as(HostRoles, run_directory / files.HOST_ROLES, "list of hosts and roles").hosts


def is_traced(run_directory: Path) -> bool:
    """Return whether a run has cell traces."""
    return (run_directory / files.TRACE_PLAN).is_file()
