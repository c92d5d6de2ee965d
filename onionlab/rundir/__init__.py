"""From settings, variant and seed to the files of a run directory, the same on every machine."""

from onionlab.rundir.compose import RunDirectory, compose

__all__ = ["RunDirectory", "compose"]
