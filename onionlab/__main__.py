"""Run the console program: ``python -m onionlab``."""

from __future__ import annotations

import sys

from onionlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
