"""What this machine has and lacks for the embedded engine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from onionlab.engines.examination import MISSING, OK, WARN, Finding, Question
from onionlab.engines.uml import huge_pages
from onionlab.engines.uml.bootcheck import memory_directory
from onionlab.engines.uml.kernel import (
    BUILD_PROGRAMS,
    check_machine,
    find_kernel,
    missing_programs,
)
from onionlab.engines.uml.kernel_source import (
    ENVIRONMENT_VARIABLE,
    choose_package,
    offered_packages,
)
from onionlab.errors import UserError
from onionlab.programs.apt import offered_by_system


def examine(question: Question, *, needed: bool) -> Iterator[Finding]:
    """A kernel, or what builds one, and memory for the guest.

    What is lacking is a warning where another engine will run.
    """
    title = "embedded engine"
    lacking = MISSING if needed else WARN
    try:
        check_machine()
    except UserError as error:
        yield Finding(lacking, title, error.message, error.hint or "")
        return
    built = find_kernel(question.root)
    if built is not None:
        patches = ", ".join(built.patches) or "no patches"
        yield Finding(OK, f"{title}: kernel", f"Linux {built.version} ({patches})")
        if built.ptrace_because:
            text = f"by ptrace, which costs up to twice as much: {built.ptrace_because}"
            yield Finding(
                WARN, f"{title}: system calls", text, "nothing to do: results are the same"
            )
    else:
        yield from _kernel_build(f"{title}: kernel", lacking)
    try:
        place = memory_directory()
    except UserError as error:
        yield Finding(lacking, f"{title}: memory in", error.message, error.hint or "")
        return
    yield Finding(OK, f"{title}: memory in", str(place))
    because = why_no_huge_pages(place)
    if because:
        text = f"no, which costs time and memory with hundreds of hosts: {because}"
        mend = (
            "let this user mount a tmpfs in a namespace of its own; without, results are the same"
        )
        yield Finding(WARN, f"{title}: huge pages", text, mend)
    else:
        yield Finding(OK, f"{title}: huge pages", "yes")


def why_no_huge_pages(folder: Path) -> str:
    """Why a guest's memory in this folder would not lie on huge pages; empty where it would."""
    done = subprocess.run(
        [*huge_pages.command(2**21), "true"],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    found = done.stdout.partition(f"{huge_pages.REFUSED}: ")[2].strip()
    return found or done.stderr.strip()


def _kernel_build(subject: str, lacking: str) -> Iterator[Finding]:
    """Whether the kernel that is not there yet can be built."""
    absent = missing_programs()
    if absent:
        mend = f"make setup, or: apt-get install {' '.join(absent)}"
        yield Finding(lacking, f"{subject} build", f"not installed: {' '.join(absent)}", mend)
    else:
        yield Finding(OK, f"{subject} build", ", ".join(BUILD_PROGRAMS))
    if os.environ.get(ENVIRONMENT_VARIABLE):
        source: str | None = os.environ[ENVIRONMENT_VARIABLE]
    else:
        source = choose_package(offered_packages(offered_by_system))
    if source is None:
        # The system's lists may be old or empty; the build fetches lists of its own.
        text = "apt's lists name no linux-source package"
        yield Finding(WARN, subject, text, f"apt-get update, or {ENVIRONMENT_VARIABLE}=/path/to/it")
    else:
        text = f"not built yet; from {source}"
        yield Finding(WARN, subject, text, "nothing to do: an experiment builds it")
