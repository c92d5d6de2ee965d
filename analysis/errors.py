"""Errors that are the user's to mend, and what a file that is not of its model gets wrong.

The standard library is enough for this module: a machine without our packages has a doctor and a
guest too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

SHOWN = 5
"""Problems listed; a file of another kind has hundreds."""


class UserError(Exception):
    """Something the user can put right: a missing tool, a malformed file, an impossible request.

    The base of all such errors of both packages. The command line prints ``error: MESSAGE``, then
    the hint, and exits with status 2. Every other exception is a defect of this program: it keeps
    its traceback, and the status is 70.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class AnalysisError(UserError):
    """Runs that cannot be analysed as asked: their files, their records, what was asked of them."""


def problems_of(error: ValidationError, whole: str) -> list[str]:
    """Each problem as ``key.key: what is wrong``; ``whole`` names what has no key."""
    return [
        f"{'.'.join(map(str, item['loc'])) or whole}: {item['msg']}"
        for item in error.errors()[:SHOWN]
    ]
