"""Install Debian packages that only one part of onionlab needs, when this part is used."""

from __future__ import annotations

import re
import subprocess

from onionlab.errors import UserError
from onionlab.paths import code_root


def install_packages(name: str) -> None:
    """Install the packages of ``configs/apt-packages-NAME.txt`` that are missing.

    Raises UserError if they cannot be installed.
    """
    script = code_root() / "onionlab" / "setup.sh"
    # Standard output is not captured: the script may ask for a password on the terminal.
    done = subprocess.run(
        [script, f"configs/apt-packages-{name}.txt"],
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        said, _, error = done.stderr.rpartition("error: ")
        message, _, hint = error.strip().partition("\n")
        aside = "".join(f"{line}\n" for line in re.findall(r"^[EW]: .*", said, re.MULTILINE))
        raise UserError(message or f"{script.name} failed", aside + hint)
