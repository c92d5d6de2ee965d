"""The experiment language: read YAML files, and return fully resolved settings."""

from onionlab.experiment.experiment import Experiment, checked_seeds, parse_seeds
from onionlab.experiment.load import AnySettings, experiment_names, load
from onionlab.experiment.settings import Settings

__all__ = [
    "AnySettings",
    "Experiment",
    "Settings",
    "checked_seeds",
    "experiment_names",
    "load",
    "parse_seeds",
]
