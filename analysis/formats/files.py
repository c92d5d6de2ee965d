"""Names of files and folders, each defined once for its writers and readers.

    runs/<id>/                 a run's directory, with the layout of tornettools
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

# Inputs of a run. Their bytes are part of its identity (see ``manifest``).
RUN = "run.json"
CLIENTS = "clients.json"
PEERS = "peers.json"
"""Replaces clients.json in a run of two libtorrent peers, without Tor."""
TRACE_PLAN = "trace.json"
"""Present only in a run with cell traces."""
HOST_ROLES = "hosts.json"
"""Present only in a run of a tornettools network."""
TEMPLATE = "shadow.data.template"
"""Initial content of the hosts' folders, from which an engine starts."""
HOST_TEMPLATES = f"{TEMPLATE}/hosts"
"""Contains a folder for each host, in its state before the run."""

RESOLVED = "resolved.yaml"
"""The run's settings with all defaults, for readers. It is not part of the run's identity."""

# Outputs of a run.
LOGS = "shadow.data"
HOSTS = f"{LOGS}/hosts"
"""Contains a folder for each host, with the logs and working directory of its programs."""
MANIFEST = "manifest.json"
"""Written last: a run with this file is complete."""
PROGRESS = "progress.json"
"""Present while a run is in progress."""
ERROR = "error.json"
"""Present after a failed attempt."""

# Records of a run.
RECORDS_FORMAT: Final = 1
"""Version of the record tables and of parse.json.

It increases if the same logs give other numbers, or if there are columns that older programs do not
know. Records of another version are extracted again.
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
"""Older records do not have this table."""
TRACE_COUNTS = "celltrace.json"
PERF_TABLE = "perf.parquet"
CIRCUITS_TABLE = "circuits.parquet"
RELAY_BYTES_TABLE = "relay_bytes.parquet"
"""Present only in a run with hosts.json, like ``PERF_TABLE`` and ``CIRCUITS_TABLE``."""

# Records of a run in a published pack, which replace the tables of streams, goodput and progress.
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
"""Name of the plot below the answer in the report: a file in FIGURES, without the extension."""
LEVELS = "levels"
"""Name of the plot that compares levels: a file in FIGURES, without the extension."""
FIGURES = "figures"
SUMMARY_CSV = "summary.csv"
RUNS_CSV = "runs.csv"
CENSORING_CSV = "censoring.csv"
CELL_TIMES_CSV = "celltrace.csv"
CELL_TTFB_CSV = "celltrace-ttfb.csv"
CELL_WAITS_CSV = "celltrace-waits.csv"

# Figures of a paper, and answers to its claims.
FIGURES_PAGE = "figures.html"
FIGURES_INDEX = "manifest.json"
"""Lists the figures with their runs and programs. It is never in the same folder as MANIFEST."""
CLAIMS = "claims"  # the plot of all claims, as PDF and PNG; without the extension
CLAIMS_CSV = f"{CLAIMS}.csv"
CLAIMS_JSON = "claims.json"
LEVELS_AGAINST = "levels-"
"""Beginning of the name of a plot; the rest is the name of a baseline.

The plot compares variants with this baseline at the levels of all experiments of a paper. LEVELS is
the corresponding plot of one experiment.
"""
CLAIMS_BESIDE_CSV = "claims-beside.csv"

# An imported network.
TORNET = "tornet.json"
"""In networks/<name>/<seed>/, written last: if it exists, the network is complete."""

# Sets of runs.
PACK_INDEX = "index.json"
STUDIES = "studies"
"""The folder with the studies of a pack. Their names are <experiment>.json."""
COMPARISON_CSV = "comparison.csv"
STEPS = "steps"
"""Name of the plot and of the table of a bisection, without the extension."""
EFFECTS_CSV = "effects.csv"
RUN_SET = "runs.set.json"
HISTORY = "history.parquet"
