"""Array types for annotations, and the base of data classes that consist of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Base of data classes whose fields are arrays of equal length.

    A field can also be None, or a mapping whose values are such arrays.
    """

    def where(self, rows: Bools) -> Self:
        """Return an object with only the rows for which the mask ``rows`` is true."""

        def select(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: array[rows] for name, array in value.items()}
            return None if value is None else value[rows]

        return replace(self, **{one.name: select(getattr(self, one.name)) for one in fields(self)})
