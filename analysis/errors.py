"""User-facing errors, and formatting of schema validation errors.

This module needs only the standard library, because ``onionlab/setup.sh`` and the guests
(User-Mode Linux) import it where no other packages are installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

SHOWN = 5
"""Maximum number of problems in a message. A file of the wrong kind has hundreds of problems."""


class UserError(Exception):
    """An error that the user can fix: a missing tool, a malformed file, an impossible request.

    This is the base of all such errors in ``analysis`` and ``onionlab``. The command line prints
    ``error: MESSAGE``, then the hint, and exits with status 2. Any other exception is a bug in this
    program: its traceback is printed, and the status is 70.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class AnalysisError(UserError):
    """Raised if runs cannot be analysed as requested."""


def problems_of(error: ValidationError, whole: str) -> list[str]:
    """Return the first ``SHOWN`` problems, each as ``key.key: message``.

    whole: replaces the keys if a problem concerns the file as a whole.
    """
    return [
        f"{'.'.join(map(str, item['loc'])) or whole}: {item['msg']}"
        for item in error.errors()[:SHOWN]
    ]
