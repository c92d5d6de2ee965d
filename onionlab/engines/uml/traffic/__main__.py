"""Play the TGen clients and servers of a traffic file: PYTHON -I -S -B THIS_FOLDER TRAFFIC.json.

The program runs until the file's stop time or SIGTERM, writes all logs and exits with status 0. On
an error it prints one line to standard error and exits with status 1. It needs only the standard
library.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from onionlab.engines.uml.traffic.driver import Driver
from onionlab.engines.uml.traffic.traffic_file import read_traffic_file
from onionlab.errors import UserError

if __name__ == "__main__":
    try:
        driver = Driver(read_traffic_file(Path(sys.argv[1])))
        driver.stop_at_signals()
        driver.run()
    except (OSError, UserError) as error:
        sys.exit("error: " + " ".join(str(error).split("\n")))
