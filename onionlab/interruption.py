"""What a polite end does to a command: an interrupt, as by Ctrl-C, that ends what it started."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


def interrupt_at_sigterm() -> None:
    """From now on SIGTERM raises KeyboardInterrupt in the main thread, which this is to be."""
    signal.signal(signal.SIGTERM, _interrupt)


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Handle SIGINT and SIGTERM at the end of the block. The caller is the main thread.

    An import that is interrupted can end with any error: extension modules turn the interrupt into
    a SystemError or an ImportError.
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


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
