"""Import all that a report takes, once, so that Python has it compiled when the first one is made.

Packages are installed without compiling them: most of what they hold is never imported. The
first report compiles what it takes, on one CPU, which takes longer than the report. A workflow
does it here, where the last runs leave a CPU (onionlab/runs/workflow/Snakefile).
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

from analysis.figures.writing import save
from analysis.formats.scratch import scratch_folder

IMPORTED = ("analysis.pages.report", "pandas", "_strptime")
"""The report's own code, and what libraries import with the first table: pandas is PyArrow's."""


def main() -> None:
    """Import what reports take, and draw a figure in each of their formats."""
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
