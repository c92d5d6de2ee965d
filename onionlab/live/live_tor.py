"""Build a Tor that can trace cells with LTTng, for a network without simulation.

This Tor has the patch series cell-trace and is configured with LTTng's probes.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from analysis.formats.durable import put_in_place
from onionlab.errors import UserError
from onionlab.programs.building import (
    apply_patch,
    build_lock,
    building_directory,
    hash_inputs,
    new_log,
)
from onionlab.programs.sources import unpack_source
from onionlab.programs.tor.build_trees import (
    PATCHES_HINT,
    PROGRAMS,
    compile_targets,
    configure,
    prepare,
    provenance,
    tor_directory,
)
from onionlab.programs.tor.tor_source import TOR
from onionlab.programs.tor.variants import tor_series
from onionlab.rundir.trace import TRACE_SERIES

LOG = logging.getLogger(__name__)
LTTNG_OPTION = "--enable-tracing-instrumentation-lttng"
LTTNG_PROGRAMS = ("lttng", "lttng-sessiond", "babeltrace2")
LTTNG_HINT = "on Debian: apt-get install lttng-tools liblttng-ust-dev babeltrace2"


def ensure_live_tor(root: Path, *, jobs: int | None = None) -> Path:
    """Return the path of a Tor with the patch series cell-trace and with LTTng-UST.

    Build this Tor if it does not exist. jobs: parallel compiler jobs, by default one per CPU.
    Raises UserError if LTTng is not installed, or if the build failed.
    """
    for name in LTTNG_PROGRAMS:
        if shutil.which(name) is None:
            raise UserError(f"program `{name}` not found", LTTNG_HINT)
    series = tor_series(root, TRACE_SERIES)
    with build_lock(tor_directory(root), "Tor"):
        inputs = prepare(root, jobs=jobs)
        decisive = {**provenance(inputs, series), "tor": inputs.source.sha256, "lttng": 1}
        store = inputs.directory / "store" / f"lttng-{hash_inputs(decisive)}"
        if not store.is_dir():
            what = "Tor with LTTng"
            log = new_log(inputs.directory, what)
            with building_directory(inputs.directory) as work:
                tree = work / "tree"
                version = unpack_source(TOR, inputs.source, tree)
                LOG.info("%s %s: building it", what, version)
                for patch in series.patches:
                    apply_patch(tree, patch, inputs.source.title, PATCHES_HINT)
                configure(inputs, tree, log, what, "--disable-unittests", LTTNG_OPTION)
                compile_targets(inputs, tree, PROGRAMS, what, log)
                staged = work / "staged"
                staged.mkdir()
                for program in PROGRAMS:
                    shutil.copy2(tree / program, staged)
                put_in_place(staged, store)
    return store / "tor"
