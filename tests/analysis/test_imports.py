"""Import of results of tgentools and tornettools as sets of runs."""

from __future__ import annotations

import importlib
import json
import lzma
import re
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runset_synthetic import make_set

from analysis.comparison.comparing import Conclusion, compare_sets
from analysis.comparison.imported_metrics import NOTES
from analysis.comparison.run_sets import RunSet, read_run_set
from analysis.errors import AnalysisError
from analysis.formats.files import RUN_SET
from analysis.imports.importing import find_simulations, import_runs
from analysis.imports.simulation import read_other, size_class
from analysis.imports.tgentools import client_class, read_analysis
from analysis.pages.comparison import html_text
from onionlab.cli import main
from onionlab.commands import compare

EPOCH = 946684800


def values(made: RunSet, seed: int = 1) -> dict[tuple[str, str], float | None]:
    return {(v.class_name, v.metric): v.value for v in made.values if v.seed == seed}


def stream(end_s: float, received: dict[str, float], progress: dict[str, float]) -> dict[str, Any]:
    return {
        "elapsed_seconds": {"payload_bytes_recv": received, "payload_progress_recv": progress},
        "stream_info": {"recvsize": "5242880"},
        "unix_ts_end": EPOCH + end_s,
    }


def analysis(ttfb: list[float], *, layout: str = "stream_summary") -> Any:
    """Return tgentools' analysis of one perf client.

    Its downloads of 50 KiB complete at 310 s, 311 s, and so on. ``ttfb`` has their times to the
    first byte in seconds. Their times to the last byte are twice as long. One download fails at 310
    s.
    """
    new = layout == "stream_summary"
    suffix = "_recv" if new else ""
    first = {str(EPOCH + 310 + i): [t] for i, t in enumerate(ttfb)}
    last = {second: [2 * t] for second, (t,) in first.items()}
    summary: dict[str, Any] = {
        f"time_to_first_byte{suffix}": {"51200": first},
        f"time_to_last_byte{suffix}": {"51200": last},
        "errors": {"TIMEOUT": {str(EPOCH + 310): [[0, 0] if new else 51200]}},
    }
    tgen: dict[str, Any] = {layout: summary}
    if new:
        summary["round_trip_time"] = {str(EPOCH + 310): [0.5]}
        times = {"512000": 1.0, "1048576": 2.0, "5242880": 7.0}
        tgen["streams"] = {
            "a": stream(320.0, times, {"0.8": 5.0, "1.0": 7.0}),
            "before": stream(20.0, {"512000": 1.0, "1048576": 9.0}, {}),
            "open": None,
        }
    node = {"measurement_ip": "unknown", "tgen": tgen}
    return {"type": "tgen", "version": "1.0.0", "data": {"perfclient1exit": node}}


@pytest.mark.parametrize("layout", ["stream_summary", "transfers_summary"])
@pytest.mark.parametrize("packed", [False, True])
def test_analysis_of_tgentools(tmp_path: Path, layout: str, packed: bool) -> None:
    text = json.dumps(analysis([1.0, 2.0, 4.0], layout=layout)).encode()
    path = tmp_path / "sim" / ("tgen.analysis.json" + (".xz" if packed else ""))
    path.parent.mkdir()
    path.write_bytes(lzma.compress(text) if packed else text)
    made = import_runs([tmp_path], "x")
    got = values(made)
    assert got["exit", "download_ttfb_p50_s"] == 2.0
    assert got["exit 50 KiB", "download_ttlb_p50_s"] == 4.0
    assert got["exit", "download_error_rate"] == pytest.approx(1 / 4)
    assert (("exit", "round_trip_time_p50_s") in got) == (layout == "stream_summary")
    assert [run.run_id for run in made.runs] == ["sim"]
    assert not made.paired
    assert set(NOTES) <= set(made.notes)


def test_a_span_selects_by_completion(tmp_path: Path) -> None:
    path = tmp_path / "tgen.analysis.json"
    path.write_text(json.dumps(analysis([1.0, 2.0, 4.0])))
    made = import_runs([tmp_path], "x", begin_s=311, end_s=312)
    assert values(made)["exit", "download_ttfb_p50_s"] == 2.0
    assert values(made)["exit", "download_error_rate"] == 0.0
    assert any("from 311 s to 312 s" in note for note in made.notes)
    # Goodput is computed from the times of two byte counts. 4 MiB are 80% of 5 MiB. If the file
    # lacks the time of 4 MiB, the time of 80% of the bytes is used.
    got = read_analysis(path, begin_s=300.0)
    assert got.values["exit", "download_goodput_500kib_1mib"] == [1048576 - 512000]
    assert got.values["exit", "download_goodput_4mib_5mib"] == [(5242880 - 4194304) / 2]


def ended_stream(start_us: int, times_us: dict[str, int], size: int, **more: Any) -> dict[str, Any]:
    """Return a stream as in OnionPerf's analyses since version 3.0. Its numbers are strings."""
    times = {"command": 250_000, "response": -1, "first-byte-recv": -1, "last-byte-recv": -1}
    return {
        "byte_info": {"payload-bytes-recv": str(size)},
        "is_success": "last-byte-recv" in times_us,
        "time_info": {f"usecs-to-{key}": str(us) for key, us in {**times, **times_us}.items()},
        "unix_ts_end": 1.9e9 + start_us / 1e6,
        **more,
    }


SLOW = {"response": 750_000, "first-byte-recv": 1_250_000, "last-byte-recv": 4_250_000}
FAST = {"response": 500_000, "first-byte-recv": 500_000, "last-byte-recv": 2_250_000}
MARKS = {"payload_bytes_recv": {"512000": 1.0, "1048576": 2.0}}


def onionperf() -> dict[str, Any]:
    """Return a day's file of OnionPerf: two downloads over exits and one from an onion service."""
    streams = {
        "1:6:localhost:127.0.0.1:1:web.example:192.0.2.9:443": ended_stream(
            0, SLOW, 5242880, elapsed_seconds=MARKS
        ),
        "2:6:localhost:127.0.0.1:2:web.example:192.0.2.9:443": ended_stream(9, FAST, 5242880),
        "3:6:localhost:127.0.0.1:3:abc.onion:0.0.0.0:443": ended_stream(20, {}, 0),
    }
    nodes = {"op-xx1": {"measurement_ip": "192.0.2.1", "tgen": {"streams": streams}, "tor": {}}}
    return {"type": "onionperf", "version": "3.1", "filters": {}, "data": {**nodes, "op-xx2": {}}}


def test_onionperf_s_own_analysis(tmp_path: Path) -> None:
    """The keys are those of a real analysis in the repository anyone-protocol/onionperf.

    Its file is onionperf/tests/data/analyses/2021-06-01.op-hk6a.*.
    """
    path = tmp_path / "2030-03-17.op-xx1.onionperf.analysis.json"
    path.write_text(json.dumps(onionperf()))
    made = import_runs([tmp_path], "x")
    assert [run.run_id for run in made.runs] == ["2030-03-17.op-xx1"]
    got = values(made)
    assert got["exit", "download_ttfb_p50_s"] == (1.0 + 0.25) / 2
    assert got["exit", "round_trip_time_p50_s"] == (0.5 + 0.25) / 2
    assert got["exit 5 MiB", "download_ttlb_p50_s"] == (4.0 + 2.0) / 2
    assert got["exit", "download_goodput_500kib_1mib_p50_bytes_per_s"] == 1048576 - 512000
    assert got["exit", "download_error_rate"] == 0.0
    assert got["onionservice", "download_error_rate"] == 1.0
    name = "2030-03-17.op-xx1"
    assert set(made.notes) - set(NOTES) == {
        f'Not counted of {name}: nodes without "tgen": op-xx2.',
        f"Not counted of {name}: OnionPerf's filters are not applied.",
        "Downloads of exit: 2 completed or failed, of which 0 failed.",
        "Downloads of onionservice: 1 completed or failed, of which 1 failed.",
    }
    with pytest.raises(AnalysisError, match="OnionPerf, which has no simulated time"):
        import_runs([path], "x", begin_s=300.0)
    path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
    with pytest.raises(AnalysisError, match=r"contains .*onionperf.analysis.json twice"):
        import_runs([tmp_path], "x")


SHARES = {"payload_progress_recv": {"0.1": 1.0, "0.2": 2.0}}
WHOLE = ended_stream(0, FAST, 5242880, elapsed_seconds=MARKS)
TIMES = WHOLE["time_info"]


def write_stream(folder: Path, **facts: Any) -> Path:
    """Write OnionPerf's analysis of one stream, and return its path.

    facts: changed values of the stream's keys. The value None removes a key.
    """
    kept = {key: value for key, value in (WHOLE | facts).items() if value is not None}
    content = {"type": "onionperf", "data": {"n": {"tgen": {"streams": {"a:1": kept}}}}}
    path = folder / "x.onionperf.analysis.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"is_success": None}, "the stream a:1 is not valid: is_success: Field required"),
        ({"is_success": "true"}, "the stream a:1 is not valid: is_success: .* boolean"),
        ({"time_info": {**TIMES, "usecs-to-response": 2.0}}, "usecs-to-response: .* integer"),
        ({"time_info": {}}, "usecs-to-command: Field required"),
        ({"byte_info": {"payload-bytes-recv": "5e6"}}, "payload-bytes-recv: .* integer"),
        ({"elapsed_seconds": []}, "elapsed_seconds: "),
        ({"elapsed_seconds": {"payload_bytes_recv": {"512000": None}}}, "512000: .* number"),
        ({"elapsed_seconds": {"payload_bytes_recv": {"512000": -1.0}}}, "512000: .*equal to 0"),
        ({"unix_ts_end": "310"}, "unix_ts_end: .* number"),
        ({"elapsed_seconds": SHARES, "stream_info": {"recvsize": "5 MiB"}}, "recvsize: .*integer"),
    ],
)
def test_a_stream_of_onionperf_that_is_not_valid_is_named(
    tmp_path: Path, facts: dict[str, Any], message: str
) -> None:
    with pytest.raises(AnalysisError, match=message):
        read_analysis(write_stream(tmp_path, **facts))


@pytest.mark.parametrize("is_success", [True, False])
def test_streams_that_succeeded_or_failed_are_counted(tmp_path: Path, is_success: bool) -> None:
    read = read_analysis(write_stream(tmp_path, is_success=is_success))
    assert read.downloads == {"exit": (0.0, 1.0) if is_success else (1.0, 1.0)}
    assert read.empty == (not is_success)
    # A failed stream is only counted. Its times are not read, so invalid times are not an error.
    path = write_stream(tmp_path, is_success=False, elapsed_seconds={"x": -1}, time_info={})
    assert read_analysis(path).downloads == {"exit": (1.0, 1.0)}


def test_a_success_without_its_time_is_noted(tmp_path: Path) -> None:
    for facts in (
        {"time_info": {**TIMES, "usecs-to-last-byte-recv": -1}},
        {"byte_info": {"payload-bytes-recv": "0"}},
    ):
        read = read_analysis(write_stream(tmp_path, **facts))
        assert read.downloads == {}
        assert read.notes == ["1 streams succeeded without a time to the last byte"]


def test_ignored_files_are_noted(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    plot_data(tmp_path / "a", 1.0, rng, stranger=[])
    plot_data(tmp_path / "old", 1.0, rng, **{"error_rate.exit": {"ALL": [80.0, 75.5]}})
    content = analysis([1.0])
    content["data"]["relay1"] = {}
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tgen.analysis.json").write_text(json.dumps(content))
    (tmp_path / "c").mkdir()
    notes = import_runs([tmp_path], "x").notes
    assert set(notes) >= {
        "Folders without results: c.",
        "Not counted of a: ignored files: stranger.json.",
        'Not counted of b: nodes without "tgen": relay1.',
        "Not counted of b: 1 streams of exit had not ended.",
        "Not counted of old: error rates of exit circuits without numbers of downloads.",
        "Downloads of exit: 32 completed or failed, of which 2 failed.",
    }
    alone = import_runs([tmp_path / "a"], "x").notes
    assert not any("Folders without" in note for note in alone)


def plot_data(folder: Path, median_s: float, rng: np.random.Generator, **more: Any) -> Path:
    """Write one simulation's folder as tornettools does. Return ``folder``.

    more: name of a file without .json -> its content, which replaces the usual one.
    """
    data = folder / "tornet.plot.data"
    data.mkdir(parents=True)
    times = (median_s * rng.lognormal(0, 0.2, 50)).round(6).tolist()
    contents = {
        "time_to_first_byte_recv.exit": {"ALL": times, "51200": times},
        "time_to_last_byte_recv.exit": {"ALL": times, "51200": times, "1048576": times[:5]},
        "error_rate.exit": {"ALL": [[10.0, 10.0], [10.0, 10.0], [0.0, 5.0], [0.0, 5.0]]},
        "perfclient_goodput.exit": [8.0, 16.0],
        "relay_goodput": {"300": 100, "301": 300},
        "resource_usage": {"ram": {}},
        **more,
    }
    for name, content in contents.items():
        if content is not None:
            (data / f"{name}.json").write_text(json.dumps(content))
    return folder


def collection(folder: Path, median_s: float, count: int, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    for number in range(count):
        plot_data(folder / f"sim{number:02}", median_s, rng)
    return folder


def test_plot_data_of_tornettools(tmp_path: Path) -> None:
    plot_data(tmp_path / "sim", 1.0, np.random.default_rng(1))
    got = values(import_runs([tmp_path], "x"))
    # tornettools writes each client twice. For one client 1 of 10 downloads failed, and for the
    # other client 0 of 20 failed.
    assert got["exit", "download_error_rate"] == pytest.approx(1 / 30)
    assert got["all", "relay_goodput_bytes_per_s"] == 200.0
    # tornettools writes goodput in Mibit/s.
    assert got["exit", "download_goodput_500kib_1mib_p50_bytes_per_s"] == 12 * 2**20 / 8
    assert ("exit 1 MiB", "download_ttlb_p50_s") in got
    assert ("exit 50 KiB", "download_ttfb_p50_s") not in got


def test_files_of_once_is_never_enough(tmp_path: Path) -> None:
    """The names of the files of "Once is Never Enough" lack the kind of circuits, such as `.exit`.

    The files are not in a folder tornet.plot.data, and OnionTrace's files have older names.
    """
    for folder in ("sim", "tor"):
        (tmp_path / folder).mkdir()
    for name, content in {
        "time_to_first_byte_recv": {"all": [1.0, 3.0], "51200": [1.0]},
        "time_to_last_byte_recv": {"all": [2.0], "51200": [2.0]},
        "oniontrace_tput": {"1200": 7},
        "oniontrace_perfclient_cbt": {"1201": [0.5, 0.75], "1202": [1.0]},
    }.items():
        (tmp_path / "sim" / f"{name}.json").write_text(json.dumps(content))
    made = import_runs([tmp_path], "x")
    assert "Folders without results: tor." in made.notes
    got = values(made)
    assert got["exit", "download_ttfb_p50_s"] == 2.0
    assert got["exit 50 KiB", "download_ttlb_p50_s"] == 2.0
    assert got["exit", "circuit_build_time_p50_s"] == 0.75
    assert got["all", "relay_goodput_bytes_per_s"] == 7.0


def test_imports_are_compared_as_independent_samples(tmp_path: Path) -> None:
    fast = import_runs([collection(tmp_path / "a", 1.0, 10, 1)], "fast")
    slow = import_runs([collection(tmp_path / "b", 1.3, 12, 2)], "slow")
    result = compare_sets(fast, slow, pair=False)
    assert not result.paired
    assert result.notes == (
        "not paired, as requested: the sets are compared as two independent samples",
    )
    assert result.about == ()
    assert not result.recorded
    assert result.conclusion is Conclusion.REGRESSION
    page = html_text(result)
    assert "Times start with the command" in page
    assert "cannot be checked" in page
    same = import_runs([collection(tmp_path / "c", 1.0, 10, 4)], "same")
    assert not compare_sets(fast, same).regressions


def test_a_simulation_without_downloads(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    plot_data(tmp_path / "a", 1.0, rng)
    nothing: dict[str, Any] = {
        "time_to_first_byte_recv.exit": {"ALL": []},
        "time_to_last_byte_recv.exit": {},
        # Circuits were built, but no download completed.
        "perfclient_circuit_build_time.exit": [0.5],
    }
    plot_data(tmp_path / "b", 1.0, rng, **nothing)
    made = import_runs([tmp_path], "x")
    assert values(made, 2)["exit", "download_ttfb_p50_s"] is None
    assert "No download completed in: b." in made.notes
    fewer = import_runs([tmp_path], "x", leave_out_empty=True)
    assert [run.run_id for run in fewer.runs] == ["a"]
    assert any("Excluded as requested" in note and "b" in note for note in fewer.notes)
    with pytest.raises(AnalysisError, match="no download completed in any"):
        import_runs([tmp_path / "b"], "x", leave_out_empty=True)


def test_plot_data_takes_precedence_over_an_analysis_in_the_same_folder(tmp_path: Path) -> None:
    plot_data(tmp_path / "a", 1.0, np.random.default_rng(1))
    (tmp_path / "a" / "tgen.analysis.json").write_text("{}")
    assert find_simulations(tmp_path) == [tmp_path / "a" / "tornet.plot.data"]


def test_a_pack_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "runs.tar.xz").touch()
    with pytest.raises(AnalysisError, match="packs are not imported") as refused:
        find_simulations(tmp_path / "runs.tar.xz")
    assert "make compare A=" in str(refused.value.hint)


def test_names_of_classes() -> None:
    assert client_class("perfclient12") == client_class("perfclient3exit") == "exit"
    assert client_class("perfclient3onionservice") == "onionservice"
    assert client_class("markovclient12exit") == "markovclientexit"
    # 1m and 5m are kinds of clients. Only the last number is the number of the client.
    assert client_class("perfclient1m7") == client_class("perfclient1m12") == "perfclient1m"
    assert client_class("perfclient5m2") == "perfclient5m"
    assert client_class("12") == "client"
    assert [size_class("exit", n) for n in (51200, 5242880, 1000)] == [
        "exit 50 KiB",
        "exit 5 MiB",
        "exit 1000 B",
    ]


ANALYSIS = analysis([1.0, 2.0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(ANALYSIS).encode()[:300], "is not valid JSON"),
        (b"[1, 2]", "file to import: Input should be a valid dictionary"),
        (b"{}", "type: Field required; data: Field required"),
        (b'{"type": "onionperf", "data": {}}', 'no node with "tgen"'),
        (b'{"type": "oniontrace", "data": {}}', "type: Input should be 'tgen' or 'onionperf'"),
        (
            b'{"type": "tgen", "data": {"a": {"tgen": {}}}}',
            "a has none of stream_summary, transfers_summary, streams",
        ),
        (json.dumps(ANALYSIS).replace('"51200"', '"-1"').encode(), "greater than or equal to 0"),
        # Without the key `errors` no download would count as failed, and the error rate would be 0.
        (json.dumps(ANALYSIS).replace('"errors"', '"more"').encode(), "errors: Field required"),
        (json.dumps(ANALYSIS).replace('"51200"', '"051200"').encode(), "a valid integer"),
        (json.dumps(ANALYSIS).replace("[1.0]", "[true]").encode(), "should be a valid number"),
        (b'{"type": "tgen", "data": {"a": {"tgen": null}}}', "tgen: Value error, null"),
        (json.dumps(ANALYSIS).replace("[1.0]", "[-1.0]").encode(), "greater than or equal to 0"),
        (json.dumps(ANALYSIS).replace("[1.0]", "[NaN]").encode(), "less than or equal to"),
    ],
)
def test_damaged_json(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tgen.analysis.json"
    path.write_bytes(content)
    with pytest.raises(AnalysisError, match=message.replace("(", r"\(")) as refused:
        import_runs([path], "x")
    assert str(path) in refused.value.message


def test_a_file_that_needs_too_much_memory_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "x.json.xz"
    path.write_bytes(lzma.compress(b"[" + b"[[[]]]," * (2**25 // 7) + b"0]", preset=0))
    tracemalloc.start()
    try:
        with pytest.raises(AnalysisError, match="may need more than 900 MB of memory"):
            read_other(list, path)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"error_rate.exit": {"TIMEOUT": []}}, "ALL: Field required"),
        ({"error_rate.exit": {"ALL": [[50.0, 0.0]]}}, "greater than 0"),
        ({"time_to_last_byte_recv.exit": {"51200": [1e999]}}, "finite|less than"),
        ({"time_to_last_byte_recv.exit": {"51200": [1.0], "051200": [1.0]}}, "valid integer"),
        ({"relay_goodput": {"300": 10**400}}, "finite|less than|valid number"),
        # The number is finite, but exceeds the highest permitted value, because a sum of such
        # numbers could overflow.
        ({"relay_goodput": {"300": 1e308}}, "less than or equal to"),
        ({"time_to_first_byte_recv": {"ALL": [1.0]}}, "of exit circuits twice"),
    ],
)
def test_damaged_plot_data(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    plot_data(tmp_path / "sim", 1.0, np.random.default_rng(1), **more)
    with pytest.raises(AnalysisError, match=message):
        import_runs([tmp_path], "x")


def test_nothing_to_import(tmp_path: Path) -> None:
    folder = tmp_path / "tornet-1/tornet.plot.data"
    folder.mkdir(parents=True)
    (folder / "error_rate.exit.json").write_text('{"ALL": []}')
    with pytest.raises(AnalysisError, match=r"contains neither .* with time_to_first_byte_recv"):
        import_runs([tmp_path], "x")
    with pytest.raises(AnalysisError, match="is missing"):
        import_runs([tmp_path / "gone"], "x")


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    importer = importlib.import_module("onionlab.commands.import")
    monkeypatch.setattr(importer, "working_root", lambda: tmp_path / "root")
    monkeypatch.setattr(compare, "working_root", lambda: tmp_path / "root")
    for name, median_s, seed in (("fast", 1.0, 1), ("slow", 1.5, 2)):
        folder = collection(tmp_path / name, median_s, 6, seed)
        assert main(["import", str(folder), "--name", name]) == 0
        path = Path(capsys.readouterr().out.splitlines()[-1])
        assert path.name == RUN_SET
        assert len(read_run_set(path).runs) == 6
    assert main(["compare", "fast", "slow"]) == 1
    page = tmp_path / "root" / "results" / "compare" / "fast-slow"
    assert " under slow as under fast (95% interval " in (page / "report.html").read_text()
    assert (page / "answer.png").stat().st_size > 1000
    assert len((page / "answer.csv").read_text().splitlines()) == 5
    assert main(["compare", "fast", "fast"]) == 2
    assert main(["import", str(tmp_path / "gone"), "--name", "x"]) == 2
    assert main(["import", str(tmp_path), "--name", "../x"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["import", str(tmp_path / "fast"), "--name", "x", "--network", "("])
    assert "invalid regular expression value: '('" in capsys.readouterr().err
    (tmp_path / "root" / "results" / "quick").mkdir()
    (tmp_path / "root" / "results" / "quick" / "study.json").write_text("{}")
    assert main(["import", str(tmp_path / "fast"), "--name", "quick"]) == 2
    assert "holds results of an experiment" in capsys.readouterr().err


def test_simulations_of_the_same_networks_are_paired(tmp_path: Path) -> None:
    """Folder names identify networks. Sets with the same networks are paired.

    One set may have additional networks.
    """
    fast = import_runs([collection(tmp_path / "a", 1.0, 6, 1)], "fast")
    slow = import_runs([collection(tmp_path / "b", 1.3, 8, 2)], "slow")
    result = compare_sets(fast, slow)
    assert (result.paired, result.pairs) == (True, 6)
    assert any("same networks" in words for words in result.notes)
    assert any(words.startswith("networks without a pair") for words in result.notes)
    assert "6 pairs of runs" in html_text(result)
    others = slow.model_copy(
        update={"runs": tuple(r.model_copy(update={"network": f"x{r.seed}"}) for r in slow.runs)}
    )
    assert not compare_sets(fast, others).paired


def test_a_pattern_finds_the_network_in_the_name(tmp_path: Path) -> None:
    names = ("classic", "phantom-preload")
    for side in names:
        for number in (1, 2, 3):
            rng = np.random.default_rng([len(side), number])
            plot_data(tmp_path / side / f"net-{number}-{side}", 1.0, rng)

    def sides(pattern: str) -> tuple[RunSet, RunSet]:
        network = re.compile(pattern) if pattern else None
        a, b = (import_runs([tmp_path / name], name, network=network) for name in names)
        return a, b

    assert not compare_sets(*sides("")).paired
    a, b = sides(r"net-\d+")
    assert [run.network for run in a.runs] == ["net-1", "net-2", "net-3"]
    result = compare_sets(a, b)
    assert (result.paired, result.pairs) == (True, 3)
    unpaired = compare_sets(*sides("net"))
    assert not unpaired.paired
    assert "not paired: net occurs more than once" in unpaired.notes
    with pytest.raises(AnalysisError, match="no part of net-1-classic matches 'seed'"):
        sides("seed")


def test_relays_keys_name_a_network_before_its_folder(tmp_path: Path) -> None:
    for side, name in (("a", "one"), ("b", "two")):
        for number in (1, 2):
            rng = np.random.default_rng([ord(side), number])
            plot_data(tmp_path / side / f"{name}{number}", 1.0, rng)
            host = tmp_path / side / f"{name}{number}" / "shadow.data.template/hosts/relay1"
            host.mkdir(parents=True)
            (host / "fingerprint").write_text(f"relay1 {number * 1111}")
    a, b = (import_runs([tmp_path / side], side) for side in ("a", "b"))
    assert {run.network for run in a.runs} == {run.network for run in b.runs}
    assert len({run.network for run in a.runs}) == 2
    assert compare_sets(a, b).paired


def test_copies_of_a_simulation_count_once(tmp_path: Path) -> None:
    folder = collection(tmp_path / "a", 1.0, 3, 1)
    shutil.copytree(folder / "sim00", folder / "copy")
    made = import_runs([folder], "a")
    assert len(made.runs) == 3
    assert any(
        note.startswith("Counted once, because") and note.endswith(": sim00 (as copy).")
        for note in made.notes
    )
    other = import_runs([collection(tmp_path / "b", 1.0, 3, 1)], "b")
    result = compare_sets(made, other, pair=False)
    assert result.notes[0].startswith("warning: 3 simulations of b are byte-identical")
    again = import_runs([collection(tmp_path / "c", 1.0, 3, 1)], "c")
    # Compared in pairs, these two imports do not differ, because their files are identical.
    assert compare_sets(again, other).identical


def test_an_import_is_not_compared_with_own_runs(tmp_path: Path) -> None:
    made = import_runs([plot_data(tmp_path / "s", 1.0, np.random.default_rng(1))], "x")
    with pytest.raises(AnalysisError, match="different definitions"):
        compare_sets(made, make_set())
