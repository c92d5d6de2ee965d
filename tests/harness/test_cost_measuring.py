"""What fills in the tables of measured runs: whose times count, and what is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.formats.manifest import Manifest, write_manifest
from onionlab.errors import UserError
from onionlab.runs.costs import measuring
from onionlab.runs.costs.calibration import Calibration
from onionlab.runs.costs.features import Features
from onionlab.runs.costs.fitting import HELD_OUT, Measured, read_measured

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = Measured("uml", "quick", "quick", "rr", 1.0, "", Features(), None, {})
RUN = "ab01"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A root whose runs take what `manifest` says; `probes` are its CPU's measures, in turn."""
    played = SimpleNamespace(
        root=tmp_path,
        manifest=Manifest(cpu_s=30.0, wall_s=40.0, total_wall_s=41.5, peak_memory_bytes=10**8),
        probes=[Calibration(us, 0.2, 0.5) for us in (2.0, 4.5, 3.0, 3.0)],
        words=[],
    )

    def onionlab(root: Path, *words: str) -> float:
        played.words.append(words[0])
        if words[0] == "run-one":
            folder = root / "runs" / RUN
            folder.mkdir(parents=True)
            write_manifest(folder / "manifest.json", played.manifest)
        return 0.25

    def planned(root: Path, request: object, say: object, *, out: Path) -> SimpleNamespace:
        runs = [SimpleNamespace(level="quick", run_id=RUN)]
        return SimpleNamespace(runs=runs, store=root / "runs", out=out, file=out / "plan.json")

    monkeypatch.setattr(measuring, "make_plan", planned)
    monkeypatch.setattr(measuring, "_onionlab", onionlab)
    monkeypatch.setattr(measuring, "calibrate", lambda cpus: played.probes.pop(0))
    for name in ("configs", "experiments", "libtorrent-patches", "tor-patches"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    return played


def test_a_run_is_written_down_with_what_it_took(machine: SimpleNamespace) -> None:
    found = measuring.measure(machine.root, QUICK)
    assert machine.words == ["run-one", "analyse"]
    assert found.wall_s == 40.0
    assert (found.took["cpu_s"], found.took["memory_bytes"]) == (30.0, 10**8)
    assert found.took["overhead_s"] == pytest.approx(1.75)
    assert found.took["disk_bytes"] > 0
    assert found.features.tors == 19


def test_a_run_whose_cpu_others_had_does_not_count(
    machine: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.manifest = machine.manifest.model_copy(update={"wall_s": 76.0})
    assert measuring.measure(machine.root, QUICK).took == {}
    assert capsys.readouterr().out.startswith("others had the CPU: 76 s by the clock for 30 s")
    assert not (machine.root / "runs" / RUN).exists()


def test_the_peak_of_a_short_run_is_not_known(machine: SimpleNamespace) -> None:
    machine.manifest = machine.manifest.model_copy(update={"cpu_s": 9.0, "wall_s": 10.0})
    assert "memory_bytes" not in measuring.measure(machine.root, QUICK).took


def test_a_run_that_is_there_is_not_made_and_not_removed(machine: SimpleNamespace) -> None:
    folder = machine.root / "runs" / RUN
    folder.mkdir(parents=True)
    write_manifest(folder / "manifest.json", machine.manifest)
    with pytest.raises(UserError, match="the run is there"):
        measuring.measure(machine.root, QUICK)
    assert folder.is_dir()
    assert machine.words == []


def test_a_table_is_filled_in_where_it_has_nothing(
    machine: SimpleNamespace, tmp_path: Path
) -> None:
    table = tmp_path / "t.csv"
    done = replace(QUICK, experiment="swrr-5mid", wall_s=2.0, took={"disk_bytes": 1.0})
    measuring.write_measured(table, [done, QUICK])
    assert read_measured(table) == [done, QUICK]
    assert measuring.main(machine.root, table) == 0
    first, second = read_measured(table)
    assert first == done
    assert second.took["cpu_s"] == 30.0
    assert second.calibration == Calibration(3.0, 0.2, 0.5)  # between before and after
    # Again: there is nothing left.
    assert measuring.main(machine.root, table) == 0
    assert machine.words == ["run-one", "analyse"]


def test_tables_are_written_as_they_are_read(tmp_path: Path) -> None:
    measuring.write_measured(tmp_path / "t.csv", read_measured(REPOSITORY / HELD_OUT))
    assert (tmp_path / "t.csv").read_bytes() == (REPOSITORY / HELD_OUT).read_bytes()
