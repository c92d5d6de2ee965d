"""From settings, variant, seed and repeat to a run directory, the same on every machine."""

from onionlab.rundir.compose import RunDirectory, compose

__all__ = ["RunDirectory", "compose"]
