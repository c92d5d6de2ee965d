"""The log of a BitTorrent client gives records: a stream for each download, and goodput."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from analysis.records.extract import extract

from .test_records import at

HEADER = (
    "onionlab-peer 1 role=fetch rule=rate-only libtorrent=2.0.8.0 transport=tcp size=500000"
    " piece=262144 sample_us=1000000"
)


LINES = [
    HEADER,
    at(100.0, "download 1 start server2:6881"),
    at(100.0, "beat 0"),
    at(100.4, "connected 100.10.0.2:6881"),
    at(101.0, "beat 0"),
    at(101.5, "download 1 first"),
    at(101.5, "received 16384"),
    at(102.0, "beat 200000"),
    at(102.25, "received 500000"),
    at(102.25, "download 1 done 500000"),
    at(102.5, "download 2 start server1:6881"),
    at(103.0, "beat 500000"),
    at(103.5, "download 2 timeout 0"),
    at(104.0, "beat 500000"),
    at(104.25, "download 3 start server1:6881"),
    at(104.75, "download 3 first"),
    at(105.0, "beat 532768"),
]


def write(folder: Path, content: str) -> Path:
    log = folder / "shadow.data/hosts/bulkclient1/libtorrent-peer-rate-only.1001.stdout"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(content)
    (folder / "clients.json").write_text(json.dumps({"bulkclient1": "bulk"}))
    (folder / "run.json").write_text(json.dumps({"epoch_unix_s": 946684800}))
    return folder


def test_each_download_is_a_stream_and_beats_are_goodput(tmp_path: Path) -> None:
    run = write(tmp_path / "run", "\n".join(LINES) + "\n")
    report = extract(run, tmp_path / "records")
    assert report.clean
    assert report.streams == {"bulk": {"success": 1, "timeout": 1, "open": 1}}
    rows = pq.read_table(tmp_path / "records/streams.parquet").to_pylist()
    columns: tuple[str, ...] = (
        "outcome",
        "server",
        "start_s",
        "ttfb_from_start_s",
        "time_to_last_byte_s",
        "end_s",
    )
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("success", "server2", 100.0, 1.5, 2.25, 102.25),
        ("timeout", "server1", 102.5, None, None, 103.5),
        ("open", "server1", 104.25, 0.5, None, 105.0),
    ]
    assert [row["bytes_received"] for row in rows] == [500000, 0, None]
    assert {row["bytes_requested"] for row in rows} == {500000}
    rows = pq.read_table(tmp_path / "records/goodput.parquet").to_pylist()
    counts = ("time_s", "bytes_read", "streams_created", "streams_succeeded", "streams_failed")
    assert [tuple(row[name] for name in counts) for row in rows] == [
        (101.0, 0, 1, 0, 0), (102.0, 200000, 0, 0, 0), (103.0, 300000, 1, 1, 0),
        (104.0, 0, 0, 0, 1), (105.0, 32768, 1, 0, 0),
    ]  # fmt: skip
