"""Errors that are the user's to mend: one class for both packages."""

from __future__ import annotations

from analysis.errors import UserError

__all__ = ["UserError"]
