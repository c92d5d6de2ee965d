"""Snakemake for jobs on this machine, without the executors for clusters.

Snakemake imports all installed executors before it selects one. The Slurm executor imports pandas
and queries the cluster, which would take half a second in every command.
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
    """Return the modules without the executors that are installed as plugins."""
    return (module for module in modules if not module.name.startswith(PREFIX))


def main() -> None:
    """Run Snakemake with the arguments of this process."""
    all_modules = pkgutil.iter_modules
    # Snakemake finds its plugins with this function.
    pkgutil.iter_modules = lambda *words: without_executors(all_modules(*words))
    from snakemake.cli import main as snakemake  # type: ignore[import-untyped]

    with scratch_folder(Path(tempfile.gettempdir()), "snakemake-onionlab-") as folder:
        # Temporary files of Snakemake are in this folder. If Snakemake is killed, the next command
        # removes the folder. TMPDIR is not changed, because the jobs inherit this variable.
        tempfile.TemporaryDirectory = functools.partial(  # type: ignore[misc,assignment]
            tempfile.TemporaryDirectory, dir=folder
        )
        snakemake(sys.argv[1:])


if __name__ == "__main__":
    main()
