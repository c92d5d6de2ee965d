"""Make what the runs of NAME take besides their engine, while that is being built.

onionlab/setup.sh starts it in a new checkout once Python's packages are there: the kernel of the
embedded engine still has one part after the other that keeps a single CPU busy. Tor is built, and
the authorities' keys are drawn. What is asked for stands in the environment, where make has put it.
The command that follows finds it all, and says what is wrong where something failed.
"""

from __future__ import annotations

import argparse
import os

from analysis.errors import AnalysisError
from analysis.formats.plan_file import Request
from onionlab.commands._request import request_of
from onionlab.errors import UserError
from onionlab.interruption import interrupt_at_sigterm
from onionlab.paths import working_root
from onionlab.runs.bench import build_before

ASKED = ("scale", "networks", "seeds", "repeats", "variants", "engine", "shadow", "tgen")
"""Arguments of a request that are variables of make."""
AUTO_SEEDS = "auto"


def asked_request() -> Request:
    """The request of the command that follows. Raises UserError where it is none."""
    given = {name: os.environ.get(name.upper(), "") for name in ASKED}
    given["seeds"] = given.pop("networks") or given["seeds"]
    if given["seeds"] == AUTO_SEEDS:
        # It begins with few, and that is all that is known.
        given["seeds"] = "1"
    return request_of(argparse.Namespace(name=os.environ["NAME"], **given))


def main() -> None:
    """Build and draw; an error is left to the command that follows."""
    # What is under way is ended, and leaves nothing.
    interrupt_at_sigterm()
    try:
        build_before(working_root(), asked_request(), lambda line: print(line, flush=True))
    except (UserError, AnalysisError):
        print("setup: what the runs take could not be made yet", flush=True)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
