"""Check whether this machine can build Tor and run an experiment.

A finding has the status ``ok``, ``warn`` (the experiment can run, but the user should read the
note) or ``missing`` (the experiment cannot run). A finding includes a fix if a fix is known.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

from onionlab.doctor import machine, software
from onionlab.engines import ENGINES
from onionlab.engines.examination import Finding, Question
from onionlab.runs.costs.estimate import available_memory_bytes


def examine(question: Question) -> Iterator[Finding]:
    """Yield all findings, in the order of the steps to set up a new machine."""
    yield software.python_version(sys.version_info[:2])
    yield software.python_packages(question.root / "requirements.lock")
    yield from software.build_tools()
    yield software.tor_builds(question.root)
    for name, kind in ENGINES.items():
        yield from kind.examine(question, needed=name == question.engine)
    yield machine.cpus(len(os.sched_getaffinity(0)))
    yield machine.memory(available_memory_bytes(), question.need)
    yield machine.disk(shutil.disk_usage(question.root).free, question.need)
