"""The history of what engines cost: every line is kept, and one that is none is named."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from bench_synthetic import measurement
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from analysis.errors import AnalysisError
from analysis.formats.bench_history import (
    BenchMeasurement,
    add_to_bench_history,
    read_bench_history,
)
from analysis.formats.json_files import parse_json

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

amounts = st.floats(1e-6, 1e9)
measurements = st.builds(
    lambda number, took, words, scale: measurement(
        number, took, project=words, host={"kernel": words, "python": scale}, marks=(words,)
    ),
    st.integers(0, 10_000),
    st.dictionaries(
        st.sampled_from(["uml", "shadow", "another"]),
        st.lists(st.tuples(amounts, amounts, st.integers(1, 10**12)), min_size=1, max_size=3),
        min_size=1,
    ),
    # What ends a line of text elsewhere does not end one here.
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.none() | st.floats(-1e9, 1e9),
)


def is_whole(line: bytes) -> bool:
    try:
        BenchMeasurement.model_validate(parse_json(line))
    except ValueError:
        return False
    return True


def emptied(tmp_path: Path) -> Path:
    path = tmp_path / "history.jsonl"
    path.unlink(missing_ok=True)
    return path


@given(made=st.lists(measurements, max_size=4), ends=st.lists(st.booleans(), min_size=4))
@same_folder
def test_what_was_added_is_read(
    tmp_path: Path, made: list[BenchMeasurement], ends: list[bool]
) -> None:
    path = emptied(tmp_path)
    for one, end in zip(made, ends, strict=False):
        add_to_bench_history(path, one)
        if not end:
            path.write_bytes(path.read_bytes().removesuffix(b"\n"))  # as an editor may
    assert read_bench_history(path) == made[: len(ends)]


@given(
    made=st.lists(measurements, min_size=1, max_size=4),
    cut=st.floats(0.01, 0.99),
    where=st.integers(0, 3),
    others=st.lists(st.sampled_from([b"null", b"{}", b"[", b"\xff", b'{"format": 2}', b"NaN"])),
)
@example(made=[measurement(0, {"uml": [(1.0, 1.0, 1)]})], cut=0.5, where=0, others=[b"null"])
@same_folder
def test_broken_lines_are_one_error_and_nothing_is_lost(
    tmp_path: Path,
    made: list[BenchMeasurement],
    cut: float,
    where: int,
    others: list[bytes],
) -> None:
    path = emptied(tmp_path)
    for one in made:
        add_to_bench_history(path, one)
    lines = path.read_bytes().split(b"\n")[:-1]
    damaged = where % len(lines)
    whole = lines[damaged]
    lines[damaged] = whole[: max(1, int(cut * len(whole)))]
    lines += others
    path.write_bytes(b"\n".join(lines) + b"\n")
    broken = [number for number, line in enumerate(lines, start=1) if not is_whole(line)]
    before = path.read_bytes()
    with pytest.raises(AnalysisError) as refused:
        read_bench_history(path)
    assert refused.value.message.startswith(f"{path}: line {broken[0]} is no measurement")
    assert f"the {len(lines) - len(broken)} others are whole" in str(refused.value.hint)
    assert path.read_bytes() == before
    # Mended, all are there, also what was added meanwhile.
    add_to_bench_history(path, made[0])
    mended = path.read_bytes().split(b"\n")
    mended[damaged] = whole
    path.write_bytes(b"\n".join(mended[: len(made)] + mended[len(lines) :]))
    assert read_bench_history(path) == [*made, made[0]]


def test_where_there_is_no_file_nothing_was_measured(tmp_path: Path) -> None:
    assert read_bench_history(tmp_path / "history.jsonl") == []


def test_a_line_that_cannot_be_written_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, one = tmp_path / "history.jsonl", measurement(0, {"uml": [(1.0, 1.0, 1)]})
    add_to_bench_history(path, one)
    before = path.read_bytes()
    write = os.write
    written: list[int] = []

    def full(descriptor: int, data: bytes) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(write(descriptor, data[: len(data) // 2]))
        return written[0]

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        add_to_bench_history(path, one)
    assert path.read_bytes() == before

    def interrupted(descriptor: int, data: bytes) -> int:
        write(descriptor, data[:9])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        add_to_bench_history(path, one)
    assert path.read_bytes() == before


def test_two_that_add_at_once_add_both(tmp_path: Path) -> None:
    path, one = tmp_path / "history.jsonl", measurement(0, {"uml": [(1.0, 1.0, 1)]})
    adders = [threading.Thread(target=add_to_bench_history, args=(path, one)) for _ in range(8)]
    for adder in adders:
        adder.start()
    for adder in adders:
        adder.join()
    assert read_bench_history(path) == [one] * 8


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    add_to_bench_history(path, measurement(0, {"uml": [(1.0, 1.5, 1)]}))
    path.write_text(path.read_text().replace('"cpu_s":1.0', '"cpu_s":0.0'))
    with pytest.raises(AnalysisError, match=r"line 1 .*cpu_s: Input should be greater than 0"):
        read_bench_history(path)
