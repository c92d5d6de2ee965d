"""Relays that trace cells: their selection and options, and the rejection of incomplete runs."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from analysis.formats.files import TRACE_PLAN
from onionlab.engines.shadow.engine import ShadowEngine
from onionlab.experiment.settings import Traced, TracedRelays
from onionlab.programs.tor.variants import tor_series
from onionlab.rundir.trace import TRACE_FILE, traced_series
from onionlab.rundir.verify import Expectation, RunRefusedError, verify_tor_logs

from .test_rundir import REPOSITORY, composed

KIND = TypeAdapter(TracedRelays)
SAYS = "[notice] Cell trace in use: file.\n"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("none", Traced()),
        ("relays", Traced("relays")),
        ({"fraction": "50 %"}, Traced("relays", 0.5)),
        ({"roles": ["guard"]}, Traced("roles", names=("guard",))),
        ({"hosts": ["guard1", "exit1"]}, Traced("hosts", names=("guard1", "exit1"))),
    ],
)
def test_valid_values(written: object, meant: Traced) -> None:
    assert KIND.validate_python(written) == meant


@pytest.mark.parametrize(
    "written",
    ["all", {}, {"roles": []}, {"roles": ["gard"]}, {"roles": ["guard"], "hosts": ["x"]}, 3],
)
def test_invalid_values(written: object) -> None:
    with pytest.raises(ValidationError):
        KIND.validate_python(written)


@pytest.mark.parametrize(
    ("trace", "names"),
    [
        (Traced("relays"), {"relay1exitguard", "relay2guard", "relay3exit", "relay4middle"}),
        (Traced("roles", names=("guard", "middle")), {"relay2guard", "relay4middle"}),
        (Traced("hosts", names=("relay3exit",)), {"relay3exit"}),
    ],
)
def test_traced_relays_log_it_and_run_the_traced_build(
    shadow_engine: ShadowEngine, trace: Traced, names: set[str]
) -> None:
    run = composed(shadow_engine, trace=trace)
    relays = {h.name: h for h in run.simulation.network.relays}
    found = {
        host
        for host in run.expectations
        if f"CellTraceFile {TRACE_FILE}\n".encode()
        in run.files[f"shadow.data.template/hosts/{host}/torrc"]
    }
    assert found == names
    assert found == {name for name, e in run.expectations.items() if e.traced}
    assert found <= set(relays)
    assert json.loads(run.files[TRACE_PLAN])["traced"] == sorted(found)
    for host, (tor, *_) in run.simulation.processes.items():
        if tor.program.startswith("tor-"):
            plain = "tor-circuit-policy"
            assert tor.program == (f"{plain}+cell-trace" if host in found else plain)
    assert run.tor_programs == ("tor-circuit-policy", "tor-circuit-policy+cell-trace")


def test_series_on_top_of_each_other() -> None:
    assert traced_series(None) == "cell-trace"
    assert traced_series("circuit-policy") == "circuit-policy+cell-trace"
    parts = [tor_series(REPOSITORY, name).patches for name in ("circuit-policy", "cell-trace")]
    both = tor_series(REPOSITORY, "circuit-policy+cell-trace")
    assert both.patches == (*parts[0], *parts[1])


@pytest.mark.parametrize(
    ("log", "trace", "wanted", "problem"),
    [
        ("nothing\n", True, True, 'did not log "Cell trace in use: file."'),
        (SAYS, False, True, "left no cell trace cells.stdtrace"),
        (SAYS, True, False, "a cell trace that was not requested"),
        (SAYS, True, True, ""),
        ("nothing\n", False, False, ""),
    ],
)
def test_a_run_without_its_traces_is_refused(
    tmp_path: Path, log: str, trace: bool, wanted: bool, problem: str
) -> None:
    (tmp_path / "guard1").mkdir()
    (tmp_path / "guard1/tor-x.1000.stdout").write_text(log)
    if trace:
        (tmp_path / "guard1" / TRACE_FILE).write_bytes(b"TORCELLT")
    expectations = {"guard1": Expectation(None, is_client=False, traced=wanted)}
    with pytest.raises(RunRefusedError, match=re.escape(problem)) if problem else nullcontext():
        verify_tor_logs(tmp_path, expectations, ("Circuit policy in use: ",))
