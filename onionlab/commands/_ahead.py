"""Begin the first builds while Python's packages are being installed.

onionlab/setup.sh starts it in a new checkout with the interpreter that it found. All that is
imported here, at whatever distance, is the standard library's and onionlab's own: the kernel of the
embedded engine is built, and Tor is configured. The command that follows finds them, and says what
is wrong where that failed.
"""

from __future__ import annotations

import os

from onionlab.engines import AUTO, build_ahead
from onionlab.errors import UserError
from onionlab.interruption import interrupt_at_sigterm
from onionlab.paths import working_root
from onionlab.programs.building import at_once
from onionlab.programs.tor.build_trees import configure_ahead


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """Build; an error is left to the command that follows."""
    # What is under way is ended, and leaves nothing.
    interrupt_at_sigterm()
    root = working_root()
    try:
        at_once(
            lambda: build_ahead(
                os.environ.get("ENGINE") or AUTO,
                root=root,
                say=_say,
                shadow=os.environ.get("SHADOW"),
                tgen=os.environ.get("TGEN"),
            ),
            lambda: configure_ahead(root, _say),
        )
    except UserError as error:
        _say(f"setup: a build beside it has stopped: {error.message}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
