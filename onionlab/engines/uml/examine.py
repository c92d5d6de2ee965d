"""Check whether this machine can run the embedded engine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from onionlab.engines.examination import MISSING, OK, WARN, Finding, Question
from onionlab.engines.uml import huge_pages
from onionlab.engines.uml.kernel import BUILD_PROGRAMS, check_machine, find_kernel, missing_programs
from onionlab.engines.uml.kernel_source import ENVIRONMENT_VARIABLE, LIST_PACKAGES, choose_package
from onionlab.engines.uml.memory import roomiest_memory_folder
from onionlab.errors import UserError
from onionlab.programs.apt import query_system_apt


def examine(question: Question, *, needed: bool) -> Iterator[Finding]:
    """Check the kernel (or what its build needs), the space for its memory, and huge pages.

    Problems are only warnings if another engine will run.
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
            text = f"by ptrace, which is up to twice as slow: {built.ptrace_because}"
            yield Finding(
                WARN, f"{title}: system calls", text, "nothing to do: results are the same"
            )
    else:
        yield from _kernel_build(f"{title}: kernel", lacking)
    try:
        place = roomiest_memory_folder()
    except UserError as error:
        yield Finding(lacking, f"{title}: memory in", error.message, error.hint or "")
        return
    yield Finding(OK, f"{title}: memory in", str(place))
    because = explain_missing_huge_pages(place)
    if because:
        text = f"no, which needs more time and memory with hundreds of hosts: {because}"
        fix = "let this user mount a tmpfs in a private namespace; results are the same without it"
        yield Finding(WARN, f"{title}: huge pages", text, fix)
    else:
        yield Finding(OK, f"{title}: huge pages", "yes")


def explain_missing_huge_pages(folder: Path) -> str:
    """Return why a guest's memory in this folder cannot use huge pages, or "" if it can."""
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
    """Check whether the missing kernel can be built.

    lacking: the status of the finding if programs that the build needs are not installed.
    """
    absent = missing_programs()
    if absent:
        fix = f"make setup, or: apt-get install {' '.join(absent)}"
        yield Finding(lacking, f"{subject} build", f"not installed: {' '.join(absent)}", fix)
    else:
        yield Finding(OK, f"{subject} build", ", ".join(BUILD_PROGRAMS))
    source = os.environ.get(ENVIRONMENT_VARIABLE) or choose_package(
        query_system_apt(*LIST_PACKAGES)
    )
    if source is None:
        # This is only a warning, because apt's lists on this system may be outdated or empty. The
        # build does not use them, but fetches its own lists.
        text = "apt's lists contain no linux-source package"
        yield Finding(WARN, subject, text, f"apt-get update, or {ENVIRONMENT_VARIABLE}=/path/to/it")
    else:
        text = f"not built yet; from {source}"
        yield Finding(WARN, subject, text, "nothing to do: experiments build it")
