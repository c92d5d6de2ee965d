"""The tutorial's policy, experiment, metric and claim do what the tutorial says. Tor is not run."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from analysis.formats.columns import Outcome
from analysis.measures.data import Beats, ClassData, Streams
from onionlab.experiment import load
from onionlab.experiment.claims_file import load_claims
from onionlab.programs.tor.variants import load_registry

from .markdown import PAGES, REPOSITORY

VARIANT, METRIC = PAGES["docs/tutorial/own-variant.md"], PAGES["docs/tutorial/own-metric.md"]
SERIES = "tor-patches/circuit-policy"
(PATCH,) = (REPOSITORY / "docs" / "tutorial" / "exhaustive").glob("*.patch")
FAMILY = "analysis/measures/families/durations.py"

pytestmark = pytest.mark.skipif(
    (REPOSITORY / "experiments" / "exhaustive.yaml").exists(),
    reason="the tutorial's files exist in this checkout",
)


def blocks(page: str, language: str) -> list[str]:
    return [fence.text for fence in PAGES[page].fences if fence.language == language]


def test_the_variant_the_experiment_and_the_claims_load(tmp_path: Path) -> None:
    """The tutorial's steps are followed exactly in a copy of the checkout."""
    for name in ("experiments", "tor-patches", "configs", "libtorrent-patches"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    shutil.copytree(REPOSITORY / "docs/tutorial/exhaustive", tmp_path / "docs/tutorial/exhaustive")
    copy = next(text for text in blocks(VARIANT.path, "sh") if "cp docs/tutorial" in text)
    subprocess.run(["sh", "-eu", "-c", copy], cwd=tmp_path, check=True)
    entry, experiment = blocks(VARIANT.path, "yaml")
    with (tmp_path / "tor-patches" / "variants.yaml").open("a", encoding="utf-8") as file:
        file.write("\n" + entry)
    (tmp_path / "experiments" / "exhaustive.yaml").write_text(experiment, encoding="utf-8")
    (claims,) = blocks(METRIC.path, "yaml")
    # The metric that the reader adds does not exist here, so an existing one replaces it.
    assert "slow_ttfb_share" in claims
    (tmp_path / "experiments" / "claims" / "exhaustive.yaml").write_text(
        claims.replace("slow_ttfb_share", "timeout_rate"), encoding="utf-8"
    )
    assert list(load_registry(tmp_path).variants)[-1] == "exhaustive"
    listed = (tmp_path / SERIES / "series").read_text(encoding="utf-8").split()
    assert listed[-1] == PATCH.name
    loaded = load("exhaustive", root=tmp_path)
    assert loaded.variants == ("exhaustive", "rr", "ewma")
    assert (list(loaded.levels), loaded.warnings) == (["exhaustive"], ())
    assert [claim.id for claim in load_claims("exhaustive", root=tmp_path).claims] == [
        "more-slow-first-bytes",
        "ewma-is-sooner-at-320-kib",
    ]


def test_the_patch_applies_to_the_files_of_the_series(tmp_path: Path) -> None:
    """Changes to Tor's own files are left out, because Tor's source is not unpacked here."""
    names = (REPOSITORY / SERIES / "series").read_text(encoding="utf-8").split()
    patches = [*(REPOSITORY / SERIES / name for name in names), PATCH]
    ours = [f"--include={pattern}" for pattern in ("changes/*", "src/*/circuitmux_[prs]*")]
    ours += ["--include=src/test/*cmux_policy*", "--include=src/test/test_circuitmux_[prs]*"]
    for patch in patches:
        subprocess.run(["git", "apply", *ours, patch], cwd=tmp_path, check=True)
    source = (tmp_path / "src/core/or/circuitmux_rr.c").read_text(encoding="utf-8")
    registered = (tmp_path / "src/core/or/circuitmux_policies.c").read_text(encoding="utf-8")
    function, line = blocks(VARIANT.path, "c")
    assert function in source
    assert line in registered


def test_the_metric_is_computed(tmp_path: Path) -> None:
    function, entries = blocks(METRIC.path, "python")
    source = (REPOSITORY / FAMILY).read_text(encoding="utf-8")
    head, start, table = source.partition("METRICS: tuple[Metric, ...] = (\n")
    assert start
    entry = entries.split("# the existing metrics\n")[1]
    end = ")\n"
    assert table.endswith(f"\n{end}")
    table = table.removesuffix(end) + entry
    imports = "from analysis.measures.metric import (\n"
    assert imports in head
    head = head.replace(imports, f"{imports}    RATE,\n")
    changed = tmp_path / "durations.py"
    changed.write_text(f"{head}{function}\n\n{start}{table}", encoding="utf-8")
    metrics = runpy.run_path(str(changed))["METRICS"]
    assert isinstance(metrics, tuple)
    assert metrics[-1].name == "slow_ttfb_share"

    nothing = np.empty(0)
    times = np.array([0.5, 1.0, 3.0, np.nan])
    streams = Streams(
        client=np.zeros(4, dtype=np.int64),
        start_s=np.full(4, 100.0),
        end_s=np.array([104.0, 104.0, 104.0, 160.0]),
        outcome=np.array([Outcome.SUCCESS] * 3 + [Outcome.TIMEOUT]),
        ttfb_s=times,
        ttfb_from_command_s=times,
        marks_s={"time_to_320kib_s": times},
        time_to_last_byte_s=times,
        bytes_requested=np.full(4, 327_680.0),
    )
    beats = Beats(np.empty(0, dtype=np.int64), nothing, nothing, nothing)
    data = ClassData(streams, beats, begin_s=90.0, end_s=120.0, horizon_s=60.0)
    assert metrics[-1].compute(data).value == pytest.approx(0.5)


def test_the_definition_goes_into_the_page_of_metrics() -> None:
    (line,) = blocks(METRIC.path, "markdown")
    assert re.match(r"- `slow_ttfb_share` \(1\): ", line)
