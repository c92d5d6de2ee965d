"""Measures of the offered load."""

from __future__ import annotations

from pathlib import Path

from analysis_synthetic import make_streams, study_content, write_run
from hypothesis import given
from hypothesis import strategies as st

from analysis.formats.columns import Outcome
from analysis.formats.study import Level
from analysis.measures.catalogue import run_statistics
from analysis.measures.run_data import load_run
from analysis.records.extract import extract

LEVEL = Level.model_validate(study_content([1])["levels"][0])

times_s = st.integers(0, 40).map(float)
spans = st.tuples(times_s, times_s, st.sampled_from([Outcome.SUCCESS, Outcome.OPEN]))


@given(st.lists(spans, max_size=20), times_s)
def test_started_streams_are_ended_or_open(
    rows: list[tuple[float, float, Outcome]], time_s: float
) -> None:
    streams = make_streams([(0, min(a, b), max(a, b), outcome) for a, b, outcome in rows])
    found = streams.open_at(time_s)
    begun = [row for row in rows if min(row[:2]) <= time_s]
    over = [row for row in begun if row[2] != Outcome.OPEN and max(row[:2]) <= time_s]
    assert found == len(begun) - len(over)


def test_classes_of_background_load_report_their_open_streams(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 1, 1.5, 3, 2)
    extract(tmp_path / "run", tmp_path / "records")
    usual = run_statistics(load_run(tmp_path / "records", LEVEL))
    assert not [name for _, name in usual if name.startswith("open_streams")]
    web = LEVEL.classes["web"].model_copy(update={"load": True})
    of_streams = load_run(tmp_path / "records", LEVEL)["web"].streams
    level = LEVEL.model_copy(
        update={
            "classes": LEVEL.classes | {"web": web},
            # Some streams are open when the span begins.
            "measured_start_s": float(of_streams.start_s[3]) + 0.1,
            "measured_end_s": float(of_streams.start_s[5]),
        }
    )
    found = run_statistics(load_run(tmp_path / "records", level))
    own = {name: statistic.value for (of, name), statistic in found.items() if of == "web"}
    for name, time_s in (("begin", level.measured_start_s), ("end", level.measured_end_s)):
        count = own[f"open_streams_at_{name}"]
        assert count == sum(
            begin <= time_s and (time_s < end or outcome == Outcome.OPEN)
            for begin, end, outcome in zip(
                of_streams.start_s, of_streams.end_s, of_streams.outcome, strict=True
            )
        )
        assert count
    assert {name for name in own if not name.startswith("open_streams")} == {"goodput_bytes_per_s"}
