"""Re-export of `analysis.errors.UserError`, the base of all errors that users can fix."""

from __future__ import annotations

from analysis.errors import UserError

__all__ = ["UserError"]
