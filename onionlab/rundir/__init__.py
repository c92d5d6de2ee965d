"""Create run directories from settings, variant, seed and repeat, identically on every machine."""

from onionlab.rundir.compose import RunDirectory, compose

__all__ = ["RunDirectory", "compose"]
