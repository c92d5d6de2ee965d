"""Work that goes on beside a block, in a thread, and ends with it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

Done = threading.Event
"""Set when the block has ended."""


@contextlib.contextmanager
def beside(work: Callable[[Done], None]) -> Iterator[None]:
    """Let `work` go on until the block ends. It has to look at the event, and soon return then."""
    done = Done()
    thread = threading.Thread(target=work, args=(done,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
