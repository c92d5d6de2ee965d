"""Record events with LTTng and convert the trace to text."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from onionlab.errors import UserError

EVENTS = "tor_cell:*"
DAEMON_TIMEOUT_S = 15.0
# LTTng discards events while its buffers are full. Eight buffers of 4 MiB for each CPU hold the
# events of about one second of a fast relay.
BUFFER_OPTIONS = ("--subbuf-size=4M", "--num-subbuf=8")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["lttng", "--no-sessiond", *arguments], capture_output=True, text=True, check=False
    )


def _require(*arguments: str) -> None:
    """Run an lttng command. Raises UserError if it fails."""
    result = _run(*arguments)
    if result.returncode != 0:
        said = (result.stdout + result.stderr).strip().splitlines()
        raise UserError(f"lttng {arguments[0]} failed: {said[-1] if said else 'no output'}")


@contextlib.contextmanager
def daemon() -> Iterator[None]:
    """Run LTTng's session daemon until the block ends, or use the user's running daemon.

    Raises UserError if the daemon does not start.
    """
    if _run("list").returncode == 0:
        yield
        return
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            ["lttng-sessiond", "--no-kernel"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + DAEMON_TIMEOUT_S
            while _run("list").returncode:
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
def session(output: Path) -> Iterator[None]:
    """Record Tor's cell events in ``output`` until the block ends."""
    name = f"celltrace-{os.getpid()}"
    _require("create", name, f"--output={output}")
    try:
        _require("enable-channel", "--userspace", *BUFFER_OPTIONS, "cells")
        _require("enable-event", "--userspace", EVENTS, "--channel=cells")
        _require("start")
        yield
        _require("stop")
    finally:
        _run("destroy", name)


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
