"""Record events with LTTng and convert the trace to text."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from onionlab.errors import UserError
from onionlab.live.live_tor import LTTNG_HINT

EVENTS = "tor_cell:*"
DAEMON_TIMEOUT_S = 15.0
# LTTng discards events while its buffers are full. Eight buffers of 4 MiB for each CPU hold the
# events of about one second of a fast relay.
BUFFER_OPTIONS = ("--subbuf-size=4M", "--num-subbuf=8")


def lttng(*arguments: str, may_fail: bool = False) -> str:
    """Run an lttng command and return its output.

    Raises UserError if the command fails, unless ``may_fail`` is true.
    """
    result = subprocess.run(
        ["lttng", "--no-sessiond", *arguments], capture_output=True, text=True, check=False
    )
    if result.returncode != 0 and not may_fail:
        said = (result.stdout + result.stderr).strip().splitlines()
        raise UserError(f"lttng {arguments[0]} failed: {said[-1] if said else 'no output'}")
    return result.stdout + result.stderr


@contextlib.contextmanager
def daemon() -> Iterator[None]:
    """Run LTTng's session daemon until the block ends, or use the user's running daemon.

    Raises UserError if the daemon is not installed or does not start.
    """
    listed = subprocess.run(["lttng", "--no-sessiond", "list"], capture_output=True, check=False)
    if listed.returncode == 0:
        yield
        return
    program = shutil.which("lttng-sessiond")
    if program is None:
        raise UserError("program `lttng-sessiond` not found", LTTNG_HINT)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [program, "--no-kernel"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env=dict(os.environ),
        )
        try:
            deadline = time.monotonic() + DAEMON_TIMEOUT_S
            while subprocess.run(
                ["lttng", "--no-sessiond", "list"], capture_output=True, check=False
            ).returncode:
                if process.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    output = said.read().decode(errors="replace").strip()[-300:]
                    raise UserError(f"LTTng's session daemon does not start: {output}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)


@contextlib.contextmanager
def session(output: Path) -> Iterator[str]:
    """Record Tor's cell events in ``output`` until the block ends. Yield the session's name."""
    name = f"celltrace-{os.getpid()}"
    lttng("create", name, f"--output={output}")
    try:
        lttng("enable-channel", "--userspace", *BUFFER_OPTIONS, "cells")
        lttng("enable-event", "--userspace", EVENTS, "--channel=cells")
        lttng("start")
        yield name
        lttng("stop")
    finally:
        lttng("destroy", name, may_fail=True)


def to_text(trace: Path, text: Path) -> str:
    """Convert a trace to text with babeltrace2. Return the warnings that babeltrace2 printed.

    Raises UserError if babeltrace2 fails.
    """
    with text.open("wb") as out:
        result = subprocess.run(
            ["babeltrace2", "--clock-gmt", str(trace)],
            stdout=out,
            stderr=subprocess.PIPE,
            check=False,
        )
    said = result.stderr.decode(errors="replace").strip()
    if result.returncode != 0:
        raise UserError(f"babeltrace2 cannot read the trace: {said[-300:]}")
    return said
