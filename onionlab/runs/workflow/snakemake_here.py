"""Snakemake for jobs on this machine: without the executors that lead to others.

Snakemake imports every executor that is installed before it knows which one it takes, and Slurm's
imports pandas and asks the cluster: half a second of each command, for nothing.
"""

from __future__ import annotations

import functools
import pkgutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from analysis.formats.scratch import scratch_folder

PREFIX = "snakemake_executor_plugin_"


def without_executors(modules: Iterable[pkgutil.ModuleInfo]) -> Iterator[pkgutil.ModuleInfo]:
    """Leave the executors out that were installed beside Snakemake."""
    return (module for module in modules if not module.name.startswith(PREFIX))


def main() -> None:
    """Run Snakemake with the arguments of this process."""
    all_modules = pkgutil.iter_modules
    # What Snakemake looks for its plugins with.
    pkgutil.iter_modules = lambda *words: without_executors(all_modules(*words))
    from snakemake.cli import main as snakemake  # type: ignore[import-untyped]

    with scratch_folder(Path(tempfile.gettempdir()), "snakemake-onionlab-") as folder:
        # The next command removes the folder of a Snakemake that was killed. TMPDIR remains as it
        # is: the jobs inherit it.
        tempfile.TemporaryDirectory = functools.partial(  # type: ignore[misc,assignment]
            tempfile.TemporaryDirectory, dir=folder
        )
        snakemake(sys.argv[1:])


if __name__ == "__main__":
    main()
