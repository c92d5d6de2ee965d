"""What the models of files have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt

LARGEST_NUMBER = 1e11
"""As a time in seconds, 3,000 years: with its microseconds an integer and a float hold it."""

LEAST_VALUE = -1.0
"""No value of a metric is less: leads and correlations are from -1 to 1, others from 0."""

LARGEST_VALUE = 1e18
"""More than any time, size, speed or count that is measured; sums and products are finite."""

Number = (
    Annotated[StrictInt, Field(ge=0, le=LARGEST_NUMBER)]
    | Annotated[StrictFloat, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False)]
)
"""A number that is written as it was given: 60 stays 60, and 60.0 stays 60.0."""


class FormatModel(BaseModel):
    """Base of all models of files: they write a file and read it.

    Keys that are not known are left out: a newer program may write more than this one reads. What
    an older program can no longer understand gets a new number of its ``format``.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    def content(self) -> Any:
        """What the file holds, as JSON knows it."""
        return self.model_dump(mode="json", by_alias=True)
