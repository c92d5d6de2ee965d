"""Debian packages that one part of the program takes, installed when it is about to be used."""

from __future__ import annotations

import re
import subprocess

from onionlab.errors import UserError
from onionlab.paths import code_root


def install_listed(name: str) -> bool:
    """Install what is missing of ``configs/apt-packages-NAME.txt``, as ``make setup`` does.

    Returns:
        Whether that was tried: outside of a checkout, packages are the user's own matter.

    Raises:
        UserError: They cannot be installed.
    """
    script = code_root() / "onionlab" / "setup.sh"
    if not script.is_file():
        return False
    # Its errors alone are read: a password is asked for on the terminal.
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
    return True
