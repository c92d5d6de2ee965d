"""A folder of nightly runs with a baseline and a history. Tests damage the files in it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from runset_synthetic import make_set
from test_nightly import Machine

from onionlab.questions import nightly

SEEDS = range(1, 5)


class Nights:
    """Three nightly runs of one experiment, and a fourth one that reads the damaged files."""

    def __init__(self, root: Path) -> None:
        self._machine = Machine(root)
        self._state = root / "nightly"
        self._pristine = root / "pristine"
        for number in range(3):
            self._night(number)
        (self.baseline,) = (self._state / "baselines").iterdir()
        self.history = self._state / "history.parquet"
        shutil.copytree(self._state, self._pristine)

    def _night(self, number: int) -> None:
        with mock.patch.object(nightly, "write_forest", return_value=None):
            self._machine.night(make_set(seeds=SEEDS, noise_seed=number), accept=number == 0)

    def next_night(self) -> None:
        """Start the fourth nightly run."""
        self._night(9)

    @property
    def measured(self) -> int:
        """Return 1 if the fourth nightly run simulated, or 0 if it was refused before that."""
        return self._machine.measured - 3

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Restore all files, and the counts of nightly runs, at the end of the block."""
        try:
            yield
        finally:
            shutil.rmtree(self._state)
            shutil.copytree(self._pristine, self._state)
            self._machine.measured = self._machine.nights = 3
