"""Start builds in separate processes, which tests may kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def start_build(call: str, root: Path, *, until: str, **variables: str) -> subprocess.Popen[str]:
    """Start a build in a new session, and wait for the line that contains ``until``.

    call: a module, a colon, and a call that uses ``root``. variables: further
    environment variables.
    """
    module, _, expression = call.partition(":")
    code = (
        "import logging, sys; from pathlib import Path\n"
        f"from {module} import *; root = Path(sys.argv[1])\n"
        f"logging.basicConfig(format='%(message)s', level='INFO', stream=sys.stdout)\n{expression}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(root)],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if until in line:
            return process
    raise AssertionError(f"the build ended without saying {until!r}")
