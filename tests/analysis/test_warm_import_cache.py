"""What is compiled before the first report is what that report takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from analysis_synthetic import write_store

REPOSITORY = Path(__file__).resolve().parents[2]
REPORT = """\
import sys
from pathlib import Path
from analysis.pages import report
store, out = map(Path, sys.argv[1:])
report.build(store / "study.json", store, out)
"""


@pytest.mark.slow
def test_a_first_report_finds_its_code_compiled(tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    # All that Python compiles goes there, and nothing is there yet.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(*words: str) -> set[Path]:
        subprocess.run([sys.executable, *words], cwd=REPOSITORY, env=environment, check=True)
        return set(compiled.rglob("*.pyc"))

    before = run("-m", "analysis.pages.warm_import_cache")
    store = write_store(tmp_path / "store")
    late = run("-c", REPORT, str(store), str(tmp_path / "out")) - before
    assert len(before) > 1000
    assert len(late) < 20, sorted(str(path.relative_to(compiled)) for path in late)
