"""Import all modules of a report once, so that Python has compiled them before the first report.

Packages are installed without compiling them, as most modules are never imported. The first report
would compile what it needs on one CPU, which takes longer than the report itself. A workflow runs
this module while its last runs leave a CPU idle (onionlab/runs/workflow/Snakefile).
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

from analysis.figures.writing import save
from analysis.formats.scratch import scratch_folder

IMPORTED = ("analysis.pages.report", "pandas", "_strptime")
"""The report's own code, and modules that libraries import with the first table."""


def main() -> None:
    """Import the modules of a report, and draw a figure in each of its formats."""
    for name in IMPORTED:
        importlib.import_module(name)
    with scratch_folder(Path(tempfile.gettempdir()), "first-report-onionlab-") as folder:
        save(_figure, folder / "a.pdf", folder / "a.png")


def _figure() -> Figure:
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], label="a")
    axes.set_xlabel("a")
    axes.legend()
    return figure


if __name__ == "__main__":
    main()
