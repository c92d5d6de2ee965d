"""The entry point of the guest's first process: PYTHON -I -S -B THIS_FILE BOOT_FILE."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[4]))
    from onionlab.engines.uml.guest.init import main

    main(sys.argv[1])
