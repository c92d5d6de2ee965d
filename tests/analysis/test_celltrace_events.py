"""Trace files (complete, cut, empty, damaged, or in another format), and LTTng's text output."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from celltrace_synthetic import PLAIN, trace_of, write_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.celltrace.events import HEADER, RECORD, Event, Trace, read_lttng_text, read_trace
from analysis.errors import AnalysisError


def same(one: Trace, other: Trace) -> None:
    assert np.array_equal(one.records, other.records)
    assert replace(one, records=other.records) == other


record_strategy = st.tuples(
    st.integers(0, 2**40),
    st.integers(1, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from([event for event in Event if event < Event.CHANNEL]),
    st.integers(0, 255),
    st.integers(0, 2),
)


@settings(max_examples=50)
@given(rows=st.lists(record_strategy, max_size=60), ended=st.booleans())
def test_written_data_is_read_back(
    rows: list[tuple[int, ...]], ended: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = trace_of(*rows, ended=ended)
    path = tmp_path_factory.mktemp("trace") / "cells"
    write_trace(path, trace)
    same(read_trace(path), trace)


@settings(max_examples=60)
@given(rows=st.lists(record_strategy, min_size=1, max_size=20), data=st.data())
def test_a_truncated_file_keeps_its_complete_records(
    rows: list[tuple[int, ...]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = trace_of(*rows)
    path = tmp_path_factory.mktemp("trace") / "cells"
    write_trace(path, trace)
    whole = path.read_bytes()
    length = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:length])
    if length < HEADER.itemsize:
        with pytest.raises(AnalysisError, match="is empty" if length == 0 else "is truncated"):
            read_trace(path)
        return
    cut = read_trace(path)
    n_records, cut_bytes = divmod(length - HEADER.itemsize, RECORD.itemsize)
    kept = max(0, n_records - len(trace.peers))
    assert np.array_equal(cut.records, trace.records[:kept])
    assert len(cut.peers) == min(n_records, len(trace.peers))
    assert (cut.cut_bytes, cut.ended, cut.malformed) == (cut_bytes, False, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a trace of two channels and a cell with four events, and return its path."""
    write_trace(tmp_path / "cells", PLAIN)
    return tmp_path / "cells"


def test_the_other_byte_order(path: Path) -> None:
    content = path.read_bytes()
    header = np.frombuffer(content, HEADER, count=1).astype(HEADER.newbyteorder(">"))
    body = np.frombuffer(content[HEADER.itemsize :], RECORD).astype(RECORD.newbyteorder(">"))
    path.write_bytes(header.tobytes() + body.tobytes())
    same(read_trace(path), PLAIN)


def record_at(number: int) -> int:
    return HEADER.itemsize + number * RECORD.itemsize


@pytest.mark.parametrize(
    ("offset", "new", "message"),
    [
        (0, b"X", "is not a cell trace"),
        (8, b"\7\7", "byte order mark is damaged"),
        (10, b"\2\0", "has format 2, but this program reads 1"),
        (14, b"\x19\0", "the sizes in its header are damaged"),
        (HEADER.itemsize, b"\xff" * 240, "10 of 10 records are invalid"),
        # Records after the closing one, as if two programs had written to the file.
        (record_at(7), PLAIN.records.tobytes(), "goes on after its closing record"),
    ],
)
def test_a_damaged_file_is_refused(path: Path, offset: int, new: bytes, message: str) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(new)] = new
    path.write_bytes(content)
    with pytest.raises(AnalysisError, match=message):
        read_trace(path)


def test_invalid_and_missing_records_are_counted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    # Record 4 is the third event, after two channels and two events. Byte 20 of a record is the
    # type of its event, and 99 is not a type.
    content[record_at(4) + 20] = 99
    path.write_bytes(content)
    damaged = read_trace(path)
    assert (damaged.malformed, damaged.first_malformed) == (1, record_at(4))
    assert np.array_equal(damaged.records, PLAIN.records[[0, 1, 3]])
    assert damaged.ended
    path.write_bytes(content[: record_at(4)] + content[record_at(5) :])
    assert read_trace(path).missing == 1


LTTNG = """\
[19:00:00.000000001] (+?.?????????) here tor_cell:channel: { cpu_id = 1 }, \
{ time_ns = 946684800000000000, channel = 1, is_outgoing = 0 }
[19:00:00.000000002] (+0.000000001) here tor_cell:inbuf: { cpu_id = 1 }, \
{ time_ns = 946684800000000000, seq = 1, channel = 1, circ_id = 77, command = 3, direction = 0 }
[19:00:00.000000003] (+0.000000001) here tor_circuit:change_state: { cpu_id = 1 }, { x = 1 }
[19:00:00.000000004] (+0.000000001) here tor_cell:queue: { cpu_id = 1 }, \
{ time_ns = 946684800000000001, seq = 1, channel = 2, circ_id = 78, command = 3, direction = 2 }
"""


def test_lttng_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text(LTTNG)
    trace = read_lttng_text(path)
    assert np.array_equal(trace.records, PLAIN.records[:2])
    assert trace.peers == {1: None}
    assert (trace.malformed, trace.first_malformed) == (0, None)
    path.write_text(LTTNG[:-20])
    trace = read_lttng_text(path)
    assert len(trace.records) == 1
    assert (trace.malformed, trace.first_malformed) == (1, 4)
    path.write_text("no trace\n")
    with pytest.raises(AnalysisError, match="has no event of a cell"):
        read_lttng_text(path)
