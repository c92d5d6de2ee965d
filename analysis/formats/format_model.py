"""The base of all models of files, and types of their values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt

LARGEST_NUMBER = 1e11
"""Maximum number in a file.

As seconds it is 3,000 years; its microseconds fit an integer and a float.
"""

LEAST_VALUE = -1.0
"""Minimum value of any metric: leads and correlations are at least -1, others at least 0."""

LARGEST_VALUE = 1e18
"""More than any measured time, size, speed or count; sums and products remain finite."""

Number = (
    Annotated[StrictInt, Field(ge=0, le=LARGEST_NUMBER)]
    | Annotated[StrictFloat, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
)
"""A number whose form is preserved: 60 stays 60, and 60.0 stays 60.0."""


class FormatModel(BaseModel):
    """Base of all models of files, which write and read them.

    Unknown keys are ignored, because a newer program may write additional ones. Incompatible
    changes increment ``format``.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    def content(self) -> Any:
        """Return the content of the file as JSON data."""
        return self.model_dump(mode="json", by_alias=True)
