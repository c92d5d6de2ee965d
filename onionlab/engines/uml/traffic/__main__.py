"""Play the TGen clients and servers of a plan.

``python -m onionlab.engines.uml.traffic PLAN.json`` runs until the plan's stop or SIGTERM, writes
all logs and exits with status 0. When something is wrong, one line on standard error says what, and
the status is 1. As ``python -I .../onionlab/engines/uml/traffic PLAN.json`` it starts without the
rest of the package and needs nothing but the standard library. plan.py describes the plan.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run the driver; the process's exit status."""
    package = __package__
    if not package:
        # Started by path: find this package without its parents, and onionlab.errors.
        here = Path(__file__).resolve().parent
        sys.path += [str(here.parent), str(here.parents[3])]
        package = here.name
    errors = import_module("onionlab.errors")
    if len(sys.argv) != 2:
        print("usage: python -m onionlab.engines.uml.traffic PLAN.json", file=sys.stderr)
        return 2
    try:
        plan = import_module(f"{package}.plan").load_plan(Path(sys.argv[1]))
        import_module(f"{package}.driver").Driver(plan).run()
    except errors.UserError as error:
        print("error: " + " ".join(str(error).split("\n")), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
