"""Build Tor with LTTng's probes and the cell trace for the live trace."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from analysis.formats.durable import put_in_place
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import (
    apply_patch,
    build_lock,
    building_directory,
    hash_inputs,
    new_log,
    run_logged,
)
from onionlab.programs.tor.build_trees import (
    AUTOTOOLS,
    CFLAGS,
    CONFIGURE_OPTIONS,
    PATCHES_HINT,
    PROGRAMS,
    compile_targets,
    prepare,
    provenance,
)
from onionlab.programs.tor.source import unpack_source
from onionlab.programs.tor.variants import tor_series
from onionlab.rundir.trace import TRACE_SERIES

LTTNG_OPTION = "--enable-tracing-instrumentation-lttng"
LTTNG_PROGRAMS = ("lttng", "lttng-sessiond", "babeltrace2")
LTTNG_HINT = "on Debian: apt-get install lttng-tools liblttng-ust-dev babeltrace2"


def ensure_live_tor(root: Path, *, say: Callable[[str], None], jobs: int | None = None) -> Path:
    """Build Tor with the series cell-trace and LTTng-UST unless it exists. Return the executable.

    Raises:
        UserError: LTTng is not installed, or the build failed.
    """
    for name in LTTNG_PROGRAMS:
        if shutil.which(name) is None:
            raise UserError(f"program `{name}` not found", LTTNG_HINT)
    series = tor_series(root, TRACE_SERIES)
    with build_lock(build_directory(root) / "tor", "Tor", say):
        inputs = prepare(root, say=say, jobs=jobs)
        decisive = {**provenance(inputs, series), "tor": inputs.source.sha256, "lttng": 1}
        store = inputs.directory / "store" / f"lttng-{hash_inputs(decisive)}"
        if not store.is_dir():
            what = "Tor with LTTng"
            log = new_log(inputs, what)
            with building_directory(inputs) as work:
                tree = work / "tree"
                version = unpack_source(inputs.source, tree)
                say(f"{what} {version}: building it")
                for patch in series.patches:
                    apply_patch(tree, patch, inputs.source.path.name, PATCHES_HINT)
                run_logged(inputs, ["autoreconf", "-i"], tree, log, f"{what}: autoreconf")
                configure = [
                    "./configure",
                    *CONFIGURE_OPTIONS,
                    "--disable-unittests",
                    LTTNG_OPTION,
                    f"CC={inputs.toolchain.compiler}",
                    f"CFLAGS={CFLAGS}",
                    *AUTOTOOLS,
                ]
                run_logged(inputs, configure, tree, log, f"{what}: configure")
                compile_targets(inputs, tree, PROGRAMS, what, log)
                staged = work / "staged"
                staged.mkdir()
                for program in PROGRAMS:
                    shutil.copy2(tree / program, staged)
                put_in_place(staged, store)
    return store / "tor"
