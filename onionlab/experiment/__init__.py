"""The experiment language: YAML files in, fully resolved settings out."""

from onionlab.experiment.load import (
    AnySettings,
    Experiment,
    Level,
    checked_seeds,
    experiment_names,
    load,
    parse_seeds,
)
from onionlab.experiment.schema import RELAY_ROLES, Figure, Settings

__all__ = [
    "RELAY_ROLES",
    "AnySettings",
    "Experiment",
    "Figure",
    "Level",
    "Settings",
    "checked_seeds",
    "experiment_names",
    "load",
    "parse_seeds",
]
