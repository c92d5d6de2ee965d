"""Facts about the machine and this project that manifests record."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onionlab import __version__
from onionlab.paths import code_root


def host_facts() -> Mapping[str, Any]:
    """Return facts of this machine that affect times, but not results."""
    model = re.search(r"^model name\s*:\s*(.*\S)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": model[1] if model else platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
    }


def current_commit() -> str:
    """Return the commit of the code, with "-dirty" if files differ from it; "" outside of git."""
    command = ["git", "-C", str(code_root()), "describe", "--always", "--abbrev=40", "--dirty"]
    command += ["--exclude=*"]  # Ignore tags.
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def project_name() -> str:
    """Return this project's version and commit as one string, such as "0.3 3b1c..."."""
    return " ".join(part for part in (__version__, current_commit()) if part)
