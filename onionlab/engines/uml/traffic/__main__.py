"""Play the TGen clients and servers of a traffic file.

``python -m onionlab.engines.uml.traffic TRAFFIC.json`` runs until the file's stop or SIGTERM,
writes all logs and exits with status 0. When something is wrong, one line on standard error says
what, and the status is 1. As ``python -I .../onionlab/engines/uml/traffic TRAFFIC.json`` it starts
without the rest of the package and needs nothing but the standard library. traffic_file.py
describes the file.
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
        print("usage: python -m onionlab.engines.uml.traffic TRAFFIC.json", file=sys.stderr)
        return 2
    try:
        traffic = import_module(f"{package}.traffic_file").load_traffic_file(Path(sys.argv[1]))
        import_module(f"{package}.driver").Driver(traffic).run()
    except errors.UserError as error:
        print("error: " + " ".join(str(error).split("\n")), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
