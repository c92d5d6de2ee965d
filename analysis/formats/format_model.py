"""What the models of files have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, StrictFloat, StrictInt

Number = StrictInt | StrictFloat
"""A number that is written as it was given: 60 stays 60, and 60.0 stays 60.0."""


class FormatModel(BaseModel):
    """Base of all models of files: they write a file and read it.

    Keys that are not known are left out: a newer program may write more than this one reads. What
    an older program can no longer understand gets a new number of its ``format``.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    def content(self) -> Any:
        """What the file holds, as JSON knows it."""
        return self.model_dump(mode="json", by_alias=True)
