"""Play the TGen clients and servers of a traffic file.

``python -m onionlab.engines.uml.traffic TRAFFIC.json`` runs until the file's stop time or SIGTERM,
writes all logs and exits with status 0. On an error it prints one line to standard error and exits
with status 1. ``python -I .../onionlab/engines/uml/traffic TRAFFIC.json`` starts without the rest
of the package and needs only the standard library. traffic_file.py describes the file.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run the driver. Return the process's exit status."""
    package = __package__
    if not package:
        # This was started by path: make this package, without its parents, and onionlab.errors
        # importable.
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
