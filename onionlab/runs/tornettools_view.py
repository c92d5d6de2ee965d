"""Copy finished runs to folders for tornettools' own `parse`, `plot` and `archive`.

    OUT/<level>-<variant>/tornet-<seed>/    the output of `tornettools simulate`:
        shadow.data/hosts/<host>/
        shadow.log free.log ...
        tornettools.generate.log        if the network still exists and was imported with this log

If all runs have the same level, the folders are called <variant>. The folders of repeats after the
first end in -repeat-<n>. `tornettools plot` accepts the folder of one level and variant as a
collection of runs. tornettools changes only the copies, and not the store.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from analysis.formats import files
from analysis.formats.compressed import DamagedError, TooLargeError, pieces
from analysis.formats.durable import put_in_place
from analysis.formats.json_files import write_json
from analysis.formats.manifest import is_whole
from analysis.formats.plan_file import PlannedRun
from analysis.measures.plot_data import plot_data
from onionlab.errors import UserError
from onionlab.runs.store import Store
from onionlab.tornet.keeping import find_generate_log

PLOT_DATA = "tornet.plot.data"

LOG_NAME = re.compile(
    r"(?P<program>tgen|oniontrace)(\.(?P<process>\d+))?\.stdout(\.gz|\.xz|\.zst)?"
)
"""Name of a log of TGen or OnionTrace. The process number and the ending of a compressed log are
optional here, but tornettools reads only uncompressed logs with a process number."""

USUAL_PROCESS = "1000"
"""Process number in the name of a copied log if the original name has no process number."""

OWN_FILES = (files.RUN, files.CLIENTS, files.HOST_ROLES, files.MANIFEST)
"""Files of a run that are not copied, because tornettools does not use them."""


def lay_out(
    root: Path, store: Store, runs: Sequence[PlannedRun], out: Path, *, with_plot_data: bool = False
) -> list[Path]:
    """Copy each finished run to a folder below ``out``, and return these folders.

    Args:
        root: The checkout, which has the networks.
        store: The store of the runs.
        runs: Runs on imported networks of tornettools.
        out: The folder to write. If it already has the folder of a run, this run is not copied.
        with_plot_data: Also write the output of `tornettools parse`, from the runs' records.

    Raises:
        UserError: A run is not finished, has no logs, or is not on an imported network.
        AnalysisError: The records of a run cannot be read.
    """
    levels = {run.level for run in runs}
    folders = []
    for run in runs:
        group = f"{run.level}-{run.variant}" if len(levels) > 1 else run.variant
        repeat = f"-repeat-{run.repeat}" if run.repeat > 1 else ""
        target = out / group / f"tornet-{run.seed}{repeat}"
        source = store.run(run.run_id)
        if not target.exists():
            _lay_out_one(root, source, target, run)
        if with_plot_data:
            for name, content in plot_data(source / files.RECORDS).items():
                write_json(target / PLOT_DATA / name, content)
        folders.append(target)
    return folders


def _lay_out_one(root: Path, run: Path, target: Path, planned: PlannedRun) -> None:
    title = planned.title
    if not is_whole(run):
        raise UserError(f"run {title} is not finished", "make the experiment first")
    if not (run / files.HOST_ROLES).is_file():
        raise UserError(
            f"run {title} is not of a network of tornettools",
            "use an experiment of kind tornettools",
        )
    if not (run / files.HOSTS).is_dir():
        raise UserError(f"run {title} has no logs", "pack it with --logs where it is")
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for path in sorted(run.iterdir()):
        if path.name in OWN_FILES or path.match(files.ANY_RECORDS):
            continue
        if path.is_dir():
            shutil.copytree(path, partial / path.name, symlinks=True, copy_function=_copy_file)
        else:
            # Copy these files instead of linking them. `archive` compresses them in place, and xz
            # rejects files with several hard links.
            shutil.copy2(path, partial / path.name)
    log = find_generate_log(root, planned.seed, run / files.HOSTS)
    if log is not None:
        shutil.copy2(log, partial / log.name)
    put_in_place(partial, target)


def _copy_file(source: str, target: str) -> None:
    """Link or copy a file, or decompress it if it is a compressed log."""
    path, copy = Path(source), Path(target)
    match = LOG_NAME.fullmatch(path.name)
    if match is not None:
        copy = copy.with_name(f"{match['program']}.{match['process'] or USUAL_PROCESS}.stdout")
    if copy.exists():
        raise UserError(f"{path.parent} has {copy.name} twice", "remove the compressed copy")
    if path.suffix in (".gz", ".xz", ".zst") and match is not None:
        try:
            with path.open("rb") as packed, copy.open("wb") as plain:
                for piece in pieces(packed, path.suffix):
                    plain.write(piece)
        except (DamagedError, TooLargeError) as error:
            raise UserError(f"{path}: {error}", "repeat the run") from None
        return
    try:
        os.link(path, copy)
    except OSError:  # the folder is on another file system, or the file system has no hard links
        shutil.copy2(path, copy)
