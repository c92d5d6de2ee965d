"""Each damaged input is read, or refused with a message. Nothing is written outside the project.

By default there are a few inputs of each kind, always the same ones. ONIONLAB_FUZZ_EXAMPLES=10000
draws that many random inputs of each kind (docs/how-to/test.md).
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from analysis_synthetic import PACKERS, TABLES, write_logs
from celltrace_synthetic import write_traced_run
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from peers.test_records import write_run
from test_imports import analysis, plot_data

from analysis.formats.files import RECORDS
from analysis.formats.json_files import read_json
from analysis.formats.tables import read_table
from onionlab.experiment import load
from onionlab.experiment.claims_file import load_claims
from onionlab.experiment.nightly_list import read_nightly_list
from onionlab.network.geography import known_capacities, known_geographies
from onionlab.programs.libtorrent.variants import load_peer_variants
from onionlab.programs.tor.variants import load_variants

from .mutations import NAMES, Draw, changed_bytes, changed_json, changed_table, json_bytes
from .project import EXAMPLES, NAME, Nights, Project, compute, peers_logs, repacked, usual_log

FEW = 40
"""Default number of inputs of each test with the mark ``slow``, which `make test` leaves out."""

FEWEST = 25
"""Default number of inputs of most tests that `make test` includes."""


def fuzz(test: Callable[..., None]) -> Any:
    """Let a test draw inputs, the same ones each time unless ONIONLAB_FUZZ_EXAMPLES is set.

    The test is marked as slow, so `make test` leaves it out.
    """
    return pytest.mark.slow(fuzz_always(test, FEW))


def fuzz_always(test: Callable[..., None], few: int = FEWEST) -> Any:
    """Do the same as ``fuzz``, but without the mark, so that `make test` includes the test.

    Use it for the files from which results are computed.
    """
    made = settings(
        max_examples=EXAMPLES or few,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        # Shrinking a failing input would take too long.
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )(given(data=st.data())(test))
    return pytest.mark.slow(pytest.mark.timeout(0)(made)) if EXAMPLES else made


FORMS: dict[str, Callable[[bytes], bytes]] = {"": lambda data: data, **PACKERS}


def packed(draw: Draw, content: bytes) -> tuple[str, bytes]:
    """Return a suffix for a file's name, and damaged content that is compressed accordingly.

    Sometimes the compressed bytes are damaged, too.
    """
    suffix = draw(st.sampled_from(list(FORMS)))
    content = FORMS[suffix](changed_bytes(draw, content))
    return suffix, changed_bytes(draw, content) if draw(st.integers(0, 3)) == 0 else content


def test_sound_inputs_are_read(project: Project) -> None:
    """Undamaged versions of the inputs of the other tests are accepted."""
    made = project.root / "runs" / "made"
    sims = project.inputs / "sims" / "tgen.analysis.json"
    content = json.dumps(analysis([1.0, 2.0, 4.0])).encode()
    with project.damaged({sims: content}):
        write_traced_run(made)
        for words in (
            ("analyse", "--run-directory", str(made)),
            ("unpack", str(project.pack_file)),
            ("compare", f"{project.pack_file}:{NAME}:ewma", f"{NAME}:ewma"),
            ("compare", f"{project.published_file}:{NAME}:ewma", f"{NAME}:ewma"),
            ("import", "--name", "theirs", str(sims)),
            ("compare", "theirs", "others"),
            ("compare", f"{NAME}:ewma", f"{NAME}:rr"),
            ("report", NAME),
            ("pack", NAME),
            ("pack", NAME, "--published"),
        ):
            assert project.call(*words) != 2, words
        write_run(made, *peers_logs(), "")
        project.call("analyse", "--run-directory", str(made))


def test_a_trace_plan_without_a_client_is_refused(project: Project) -> None:
    """The fuzz tests find this case only with many more inputs than by default."""
    run = project.root / "runs" / "made"
    with project.damaged({run / "x": None}):
        write_traced_run(run)
        plan = read_json(run / "trace.json")
        del plan["hosts"]["web2client"]
        (run / "trace.json").write_text(json.dumps(plan))
        assert project.call("analyse", "--run-directory", str(run)) == 2


@fuzz
def test_logs_of_tgen(project: Project, data: st.DataObject) -> None:
    run = project.root / "runs" / "made"
    write_logs(run, {"web1client": ("web", usual_log()), "web2client": ("web", usual_log())})
    log = run / "shadow.data" / "hosts" / "web1client" / "tgen.1000.stdout"
    suffix, content = packed(data.draw, log.read_bytes())
    with project.damaged({log: None, log.with_name(log.name + suffix): content}):
        analyse(project, run)


@fuzz
def test_logs_of_peers(project: Project, data: st.DataObject) -> None:
    run = project.root / "runs" / "made"
    suffix = data.draw(st.sampled_from(list(FORMS)))
    seed, downloader = (FORMS[suffix](changed_bytes(data.draw, log)) for log in peers_logs())
    with project.damaged({}):
        write_run(run, seed, downloader, suffix)
        analyse(project, run)


@fuzz
def test_cell_traces_and_run_descriptions(project: Project, data: st.DataObject) -> None:
    run = project.root / "runs" / "made"
    with project.damaged({run / "x": None}):
        write_traced_run(run)
        names = ["run.json", "clients.json", "trace.json", "shadow.data/hosts/middle1/cells"]
        path = run / data.draw(st.sampled_from(names))
        path.write_bytes(changed_file(data.draw, path))
        analyse(project, run)


def analyse(project: Project, run: Path) -> None:
    """Extract records from damaged logs. If they are not refused, the records can be read."""
    if project.call("analyse", "--run-directory", str(run)) == 0:
        for path in (run / RECORDS).glob("*.parquet"):
            read_table(path, TABLES[path.name])


@fuzz_always
def test_packs(project: Project, data: st.DataObject) -> None:
    """A pack has damaged bytes, or one of its members was changed, renamed or removed.

    The index has either the hashes of the present members or the hashes from before the change.
    """
    draw = data.draw
    path = project.pack_file
    file = changed_pack(draw, project.members, path.read_bytes(), version=1)
    with project.damaged({path: file, project.root / "runs" / "x": None}):
        project.call("unpack", str(path))
        if draw(st.integers(0, 3)) == 0:
            project.call("compare", f"{path}:{NAME}:ewma", f"{NAME}:ewma")


@fuzz
def test_published_packs(project: Project, data: st.DataObject) -> None:
    """Published packs are damaged as in ``test_packs``. `unpack` refuses all published packs."""
    draw = data.draw
    path = project.published_file
    file = changed_pack(draw, project.published_members, path.read_bytes(), version=2)
    with project.damaged({path: file, project.root / "runs" / "x": None}):
        assert project.call("unpack", str(path)) == 2
        project.call("compare", f"{path}:{NAME}:ewma", f"{NAME}:ewma")


def changed_pack(draw: Draw, members: Mapping[str, bytes], whole: bytes, version: int) -> bytes:
    """Return ``whole`` with damaged bytes, or a pack of ``members``, one of which is changed."""
    members = dict(members)
    how = draw(st.integers(0, 3))
    if not how:
        return changed_bytes(draw, whole)
    name = draw(st.sampled_from([one for one in members if "shadow.data" not in one]))
    content = members.pop(name)
    if draw(st.integers(0, 5)) == 0:
        run_id = name.split("/")[0]
        name = draw(st.sampled_from([run_id, f"{run_id}/", "studies/", ""])) + draw(
            st.sampled_from([one for one in NAMES if one])
        )
    elif name.endswith(".json"):
        content = json_bytes(draw, changed_json(draw, json.loads(content)))
    else:
        content = changed_content(draw, content)
    if draw(st.integers(0, 5)):
        members[name] = content
    # The index has to be the first member.
    members = {"index.json": members.pop("index.json", b"{}"), **members}
    return repacked(members, hashes=how > 1, version=version)


@fuzz
def test_analyses_of_others(project: Project, data: st.DataObject) -> None:
    draw = data.draw
    made = changed_json(draw, analysis([1.0, 2.0, 4.0], layout=draw(st.sampled_from(LAYOUTS))))
    content = json_bytes(draw, made)
    suffix = draw(st.sampled_from(("", ".xz")))
    path = project.inputs / "sims" / f"tgen.analysis.json{suffix}"
    with project.damaged({path: FORMS[suffix](content)}):
        if project.call("import", "--name", "theirs", str(path)) == 0:
            project.call("compare", "theirs", "others")


def changed_file(draw: Draw, path: Path) -> bytes:
    """Return the content of a file after damage to its values or its bytes."""
    if path.suffix == ".json":
        return json_bytes(draw, changed_json(draw, read_json(path)))
    return changed_content(draw, path.read_bytes())


def changed_content(draw: Draw, content: bytes) -> bytes:
    """Return content with damaged bytes or, if it is a Parquet file, with changed values."""
    if content.startswith(b"PAR1") and draw(st.booleans()):
        return changed_table(draw, pq.read_table(io.BytesIO(content)))
    return changed_bytes(draw, content)


LAYOUTS = ("stream_summary", "transfers_summary")


@fuzz
def test_plot_data_of_others(project: Project, data: st.DataObject) -> None:
    folder = project.inputs / "sims"
    with project.damaged({folder / "x": None}):
        plot_data(folder, 1.0, np.random.default_rng(1))
        path = data.draw(st.sampled_from(sorted(folder.rglob("*.json"))))
        path.write_bytes(changed_file(data.draw, path))
        project.call("import", "--name", "theirs", str(folder))


@fuzz
def test_results(project: Project, data: st.DataObject) -> None:
    """A finished experiment has a damaged plan.json, study.json or manifest, or damaged records."""
    draw = data.draw
    run = project.root / "runs" / draw(st.sampled_from(project.run_ids))
    files = [
        *(project.results / name for name in ("plan.json", "study.json")),
        *(run / name for name in ("manifest.json", "records-v1/parse.json")),
        *(run / "records-v1" / name for name in ("streams.parquet", "goodput.parquet")),
    ]
    commands = [
        ("compare", f"{NAME}:ewma", f"{NAME}:rr"),
        *(("report", NAME), ("pack", NAME), ("pack", NAME, "--published"), ("analyse", NAME)),
    ]
    path = draw(st.sampled_from(files))
    with project.damaged({path: changed_file(draw, path)}):
        project.call(*draw(st.sampled_from(commands)))


@fuzz_always
def test_sets_of_runs(project: Project, data: st.DataObject) -> None:
    path = project.root / "results" / "others" / "runs.set.json"
    content = changed_file(data.draw, path)
    with project.damaged({path.parent.with_name("changed") / path.name: content}):
        project.call("compare", "others", "changed")


YAML = (
    *("experiments/quick.yaml", "experiments/base/table1.yaml", "experiments/nightly.yaml"),
    *("experiments/claims/swrr.yaml", "tor-patches/variants.yaml", "configs/regions.yaml"),
    *("configs/relay-capacity.yaml", "libtorrent-patches/variants.yaml"),
)


@fuzz
def test_yaml(project: Project, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(YAML))
    path = project.root / name
    readers: dict[str, Callable[[], Any]] = {
        "experiments/nightly.yaml": lambda: read_nightly_list(path, root=project.root),
        "experiments/claims/swrr.yaml": lambda: load_claims("swrr", root=project.root),
        "tor-patches/variants.yaml": lambda: load_variants(project.root),
        "libtorrent-patches/variants.yaml": lambda: load_peer_variants(project.root),
        "configs/regions.yaml": lambda: known_geographies(project.root),
        "configs/relay-capacity.yaml": lambda: known_capacities(project.root),
    }
    read = readers.get(name, lambda: load("quick", root=project.root))
    with project.damaged({path: changed_bytes(data.draw, path.read_bytes())}):
        project.check(read)


# With fewer inputs, this test would miss known kinds of faults.
@pytest.mark.parametrize("file", ["history", "baseline"])
@partial(fuzz_always, few=60)
def test_files_of_nights(project: Project, nights: Nights, data: st.DataObject, file: str) -> None:
    """A damaged history or baseline is either read or refused before anything is simulated."""
    with nights.restored():
        path = nights.files[file]
        path.write_bytes(changed_file(data.draw, path))
        status = project.check(nights.next_night)
        assert nights.measured == (status == 0)


@fuzz_always
def test_records(project: Project, data: st.DataObject) -> None:
    """Damaged records of each kind of run are published and give metrics, or are refused."""
    draw = data.draw
    path = draw(st.sampled_from(draw(st.sampled_from(project.samples))))
    records = project.root / "runs" / "made" / path.parent.name
    with project.damaged({records / "x": None}):
        shutil.copytree(path.parent, records)
        (records / path.name).write_bytes(changed_file(draw, path))
        project.check(lambda: compute(records))


# fmt: off
COMMANDS = (
    ("report", "{}"), ("analyse", "{}"), ("pack", "{}"), ("pack", NAME, "--seeds", "{}"),
    ("compare", "{}", f"{NAME}:rr"), ("compare", NAME, "{}"), ("compare", f"{NAME}:{{}}", NAME),
    ("compare", f"{NAME}:ewma", f"{NAME}:rr", "--allow-diff", "{}"),
    ("unpack", "{}"), ("build", "{}"),
    ("report", "--plan", "{}"), ("analyse", "--run-directory", "{}"), ("doctor", "x{}"),
    ("import", "--name", "{}", "inputs"), ("import", "--name", "x", "{}"), ("run", "x{}"),
    ("import", "--name", "x", "--start", "{}", "inputs"), ("generate", "x{}"),
    ("experiment", "x{}"),
    ("estimate", "x{}"),
    ("figures", "--claims", "{}"), ("figures", "--packs", "{}"), ("nightly", "--config", "{}"),
    ("run-one", "--plan", "{}", "--run", "{}"),
    ("run", "quick", "--seeds", "x{}"), ("run", "quick", "--scale", "x{}"), ("{}",),
    ("run", "quick", "--jobs", "x{}"), ("celltrace-live", "--scheduler", "{}"),
)
# fmt: on


@fuzz
def test_names(project: Project, data: st.DataObject) -> None:
    """Each example passes a strange name as an argument of a command.

    No such argument is valid, so no command starts to work.
    """
    texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
    name = data.draw(st.sampled_from(NAMES) | texts)
    words = [word.replace("{}", name) for word in data.draw(st.sampled_from(COMMANDS))]
    here = Path.cwd()
    os.chdir(project.inputs)
    try:
        with project.damaged({}):
            project.call(*words)
    finally:
        os.chdir(here)
