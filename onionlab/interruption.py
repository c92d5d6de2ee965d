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
    """Deliver SIGINT and SIGTERM at the end of the block.

    An import that is interrupted can end with any error: extension modules turn the interrupt into
    a SystemError or an ImportError.
    """
    arrived: list[int] = []
    # A mask would not do: the signal would go to another thread.
    before = {
        number: signal.signal(number, lambda one, _frame: arrived.append(one))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for received in arrived:
            signal.raise_signal(received)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
