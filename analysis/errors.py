"""The one error type of this package."""

from __future__ import annotations


class AnalysisError(Exception):
    """Something a user can act on: what is wrong, and a hint at what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
