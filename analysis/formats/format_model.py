"""The base class of all models of files, and the types of their values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt

LARGEST_NUMBER = 1e11
"""Maximum of a ``Number``, and of a time in seconds.

This is 3,000 years in seconds. In microseconds, it still fits into a 64-bit integer.
"""

LEAST_VALUE = -1.0
"""Minimum value of any metric.

Only ``last_three_lead``, a difference of two shares, can be negative, down to -1.
"""

LARGEST_VALUE = 1e18
"""Maximum of a measured value. Real values are far smaller; sums and products remain finite."""

Number = (
    Annotated[StrictInt, Field(ge=0, le=LARGEST_NUMBER)]
    | Annotated[StrictFloat, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
)
"""A nonnegative number that keeps its type: 60 remains an integer, and 60.0 a float."""


class FormatModel(BaseModel):
    """Base class of the models with which files are written and read.

    Unknown keys are ignored, because a newer program may write additional ones. Incompatible
    changes increment ``format``.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    def content(self) -> Any:
        """Return the content of the file as JSON data."""
        return self.model_dump(mode="json", by_alias=True)
