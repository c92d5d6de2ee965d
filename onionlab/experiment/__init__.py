"""The experiment language: YAML files in, fully resolved settings out."""

from onionlab.experiment.experiment import Experiment, Level, checked_seeds, parse_seeds
from onionlab.experiment.header import Figure
from onionlab.experiment.load import AnySettings, experiment_names, load
from onionlab.experiment.network_settings import RELAY_ROLES
from onionlab.experiment.settings import Settings

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
