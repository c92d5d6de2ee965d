"""Treat SIGTERM like Ctrl-C, so that both make a command end the processes that it started."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


def interrupt_at_sigterm() -> None:
    """Make SIGTERM raise KeyboardInterrupt in the main thread. Call this in the main thread."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer SIGINT and SIGTERM to the end of the block. Call this in the main thread.

    Use such a block for imports: an interrupted import can raise any error, because extension
    modules turn the interrupt into a SystemError or an ImportError.
    """
    arrived: list[int] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }
    for number in handlers:
        signal.signal(number, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for late in arrived:
        signal.raise_signal(late)
