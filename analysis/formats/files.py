"""Names of files and folders, each defined once for its writers and readers.

    runs/<id>/                 a run's directory: a tornettools-style prefix
        run.json clients.json peers.json trace.json hosts.json conf/ shadow.data.template/
        shadow.data/hosts/<host>/     output of each host's programs: logs and traces
        resolved.yaml                 the run's settings with all defaults
        manifest.json                 marks the run as finished
        records-v<N>/                 data extracted from its logs
    results/<name>/            plan.json, study.json and the report
    networks/<name>/<seed>/    tornet.json and the files of an imported network
    nightly/                   history.parquet and baselines

docs/reference/formats.md describes their contents. This module needs only the standard library.
"""

from __future__ import annotations

from typing import Final

# Inputs of a run. Their bytes are part of its identity.
RUN = "run.json"
CLIENTS = "clients.json"
PEERS = "peers.json"
"""Replaces clients.json in a run of libtorrent peers only."""
TRACE_PLAN = "trace.json"
"""Present only in a run with cell traces."""
HOST_ROLES = "hosts.json"
"""Present only in a run of a tornettools network."""
TEMPLATE = "shadow.data.template"
"""Initial content of the hosts' folders, from which an engine starts."""
HOST_TEMPLATES = f"{TEMPLATE}/hosts"
"""The folder of each host before the run."""

RESOLVED = "resolved.yaml"
"""The run's settings with all defaults, for readers. It is not part of the identity."""

# Outputs of a run.
LOGS = "shadow.data"
HOSTS = f"{LOGS}/hosts"
"""The folder of each host, with the logs and working directory of its programs."""
MANIFEST = "manifest.json"
"""Written last: a run with this file is complete."""
PROGRESS = "progress.json"
"""Present while a run is in progress."""
ERROR = "error.json"
"""Present after a failed attempt."""

# Records of a run.
RECORDS_FORMAT: Final = 1
"""Version of the record tables and of parse.json.

A new version gives other numbers from the same logs, or has columns that older programs do not
know. The records are then extracted again.
"""
RECORDS = f"records-v{RECORDS_FORMAT}"
ANY_RECORDS = "records-*"
PARSE_REPORT = "parse.json"
"""Written last: if it exists, the tables that belong to it exist as well."""
STREAMS_TABLE = "streams.parquet"
GOODPUT_TABLE = "goodput.parquet"
PROGRESS_TABLE = "progress.parquet"
PEERS_TABLE = "peers.parquet"
TRANSFER_FACTS = "transfer.json"
CELLS_TABLE = "cells.parquet"
RELAY_TIME_TABLE = "relay_time.parquet"
ARRIVALS_TABLE = "cell_arrivals.parquet"
"""Missing in records from before this table was introduced."""
TRACE_COUNTS = "celltrace.json"
PERF_TABLE = "perf.parquet"
CIRCUITS_TABLE = "circuits.parquet"
RELAY_BYTES_TABLE = "relay_bytes.parquet"
"""Present only in a run with hosts.json, like the two tables before it."""

# Records of a run in a published pack, which replace streams, goodput and progress.
PUBLISHED = "published.json"
PUBLISHED_STREAMS = "published-streams.parquet"
PUBLISHED_GOODPUT = "published-goodput.parquet"
PUBLISHED_PROGRESS = "published-progress.parquet"

# Results of an experiment.
PLAN = "plan.json"
STUDY = "study.json"
REPORT = "report.html"
ANSWER = "answer.txt"
"""The first sentences of the report, one per line."""
FOREST = "answer"
"""The plot below them, in FIGURES, without its extension."""
LEVELS = "levels"
"""The plot of several levels, in FIGURES, without its extension."""
FIGURES = "figures"
SUMMARY_CSV = "summary.csv"
RUNS_CSV = "runs.csv"
CENSORING_CSV = "censoring.csv"
CELL_TIMES_CSV = "celltrace.csv"
CELL_TTFB_CSV = "celltrace-ttfb.csv"
CELL_WAITS_CSV = "celltrace-waits.csv"

# Figures and answers of a paper.
FIGURES_PAGE = "figures.html"
FIGURES_INDEX = "manifest.json"
"""Lists the figures with their runs and programs. It is never in the same folder as a run."""
CLAIMS = "claims"  # without extension: the plot of all claims, as PDF and PNG
CLAIMS_CSV = f"{CLAIMS}.csv"
CLAIMS_JSON = "claims.json"
LEVELS_AGAINST = "levels-"
"""Followed by the name of a baseline: the plot of its levels, like LEVELS of one experiment."""
CLAIMS_BESIDE_CSV = "claims-beside.csv"

# An imported network.
TORNET = "tornet.json"
"""In networks/<name>/<seed>/, written last: if it exists, the network is complete."""

# Sets of runs.
PACK_INDEX = "index.json"
STUDIES = "studies"
"""The studies of a pack, <experiment>.json."""
COMPARISON_CSV = "comparison.csv"
EFFECTS_CSV = "effects.csv"
RUN_SET = "runs.set.json"
HISTORY = "history.parquet"
