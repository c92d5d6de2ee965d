"""What a polite end does to a command: an interrupt, as by Ctrl-C, that ends what it started."""

from __future__ import annotations

import signal
from types import FrameType


def interrupt_at_sigterm() -> None:
    """From now on SIGTERM raises KeyboardInterrupt in the main thread, which this is to be."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
