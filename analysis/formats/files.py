"""Names of files and folders: each stands here, once, for those who write it and those who read it.

    runs/<id>/                 a run's directory: a tornettools-style prefix
        run.json clients.json peers.json trace.json hosts.json conf/ shadow.data.template/
        shadow.data/hosts/<host>/     what each host's programs left: logs and traces
        manifest.json                 the run is finished
        records-v<N>/                 what was read from its logs
    results/<name>/            plan.json, study.json and the report
    networks/<name>/<seed>/    tornet.json and the files of an imported network
    nightly/                   history.parquet and baselines

docs/reference/formats.md tells what stands in them. The standard library is enough here.
"""

from __future__ import annotations

from typing import Final

# What a run starts from: its bytes are part of what names the run.
RUN = "run.json"
CLIENTS = "clients.json"
PEERS = "peers.json"
"""Of a run of libtorrent's peers alone, in place of clients.json."""
TRACE_PLAN = "trace.json"
"""Of a run with cell traces alone."""
HOST_ROLES = "hosts.json"
"""Of a run of a network of tornettools."""
TEMPLATE = "shadow.data.template"
"""What an engine starts the hosts' folders from."""
HOST_TEMPLATES = f"{TEMPLATE}/hosts"
"""Each host's folder as it is before the run."""

# What a run left.
LOGS = "shadow.data"
HOSTS = f"{LOGS}/hosts"
"""Each host's folder: its programs' logs and working directory."""
MANIFEST = "manifest.json"
"""Whoever finds it finds the whole run."""
PROGRESS = "progress.json"
"""Of a run under way."""
ERROR = "error.json"
"""Of a failed attempt."""

# A run's records.
RECORDS_FORMAT: Final = 1
"""Version of the record tables and of parse.json. Another one means other numbers from the same
logs, or columns that older programs do not know: the records are extracted again."""
RECORDS = f"records-v{RECORDS_FORMAT}"
ANY_RECORDS = "records-*"
PARSE_REPORT = "parse.json"
"""Written last: whoever finds it finds the tables that belong to it."""
STREAMS_TABLE = "streams.parquet"
GOODPUT_TABLE = "goodput.parquet"
PROGRESS_TABLE = "progress.parquet"
PEERS_TABLE = "peers.parquet"
TRANSFER_FACTS = "transfer.json"
CELLS_TABLE = "cells.parquet"
RELAY_TIME_TABLE = "relay_time.parquet"
ARRIVALS_TABLE = "cell_arrivals.parquet"
"""Records from before there was this table are without it."""
TRACE_COUNTS = "celltrace.json"
PERF_TABLE = "perf.parquet"
CIRCUITS_TABLE = "circuits.parquet"
RELAY_BYTES_TABLE = "relay_bytes.parquet"
"""These three are of runs with hosts.json alone."""

# Of a run in a published pack, in its records' folder: in place of streams, goodput and progress.
PUBLISHED = "published.json"
PUBLISHED_STREAMS = "published-streams.parquet"
PUBLISHED_GOODPUT = "published-goodput.parquet"
PUBLISHED_PROGRESS = "published-progress.parquet"

# An experiment's results.
PLAN = "plan.json"
STUDY = "study.json"
REPORT = "report.html"
ANSWER = "answer.txt"
"""The report's first sentences, a line each."""
FOREST = "answer"
"""The plot below them, without its ending; in FIGURES."""
LEVELS = "levels"
"""The plot of several levels, without its ending; there too."""
FIGURES = "figures"
SUMMARY_CSV = "summary.csv"
RUNS_CSV = "runs.csv"
CENSORING_CSV = "censoring.csv"
CELL_TIMES_CSV = "celltrace.csv"
CELL_TTFB_CSV = "celltrace-ttfb.csv"
CELL_WAITS_CSV = "celltrace-waits.csv"

# A paper's figures and answers.
FIGURES_PAGE = "figures.html"
FIGURES_INDEX = "manifest.json"
"""Which figures were drawn, of which runs, with which programs. It never lies beside a run."""
CLAIMS = "claims"  # and an ending: the plot of all claims, as PDF and PNG
CLAIMS_CSV = f"{CLAIMS}.csv"
CLAIMS_JSON = "claims.json"
LEVELS_AGAINST = "levels-"
"""And a baseline's name: the plot of all levels with it, as LEVELS of one experiment."""
CLAIMS_BESIDE_CSV = "claims-beside.csv"

# An imported network.
TORNET = "tornet.json"
"""Of networks/<name>/<seed>/: whoever finds it finds the whole network."""

# Several runs together.
PACK_INDEX = "index.json"
STUDIES = "studies"
"""The studies of a pack, <experiment>.json."""
COMPARISON_CSV = "comparison.csv"
EFFECTS_CSV = "effects.csv"
RUN_SET = "runs.set.json"
HISTORY = "history.parquet"
