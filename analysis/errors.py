"""The one error type of this package, and what a file that is not of its model gets wrong."""

from __future__ import annotations

from pydantic import ValidationError

SHOWN = 5
"""Problems listed; a file of another kind has hundreds."""


class AnalysisError(Exception):
    """Something a user can act on: what is wrong, and a hint at what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def problems_of(error: ValidationError, whole: str) -> list[str]:
    """Each problem as ``key.key: what is wrong``; ``whole`` names what has no key."""
    return [
        f"{'.'.join(map(str, item['loc'])) or whole}: {item['msg']}"
        for item in error.errors()[:SHOWN]
    ]
