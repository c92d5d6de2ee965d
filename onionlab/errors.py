"""Errors that are the user's to mend."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(Exception):
    """Something the user can put right: a missing tool, a malformed file, an impossible request.

    The command line prints ``error: MESSAGE``, then the hint, and exits with status 2. Every other
    exception is a defect of this program and keeps its traceback.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"
