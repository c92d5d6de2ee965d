"""The experiment language: YAML files in, fully resolved settings out."""

from onionlab.experiment.experiment import Experiment, Level
from onionlab.experiment.file_kinds import AnySettings
from onionlab.experiment.finding import experiment_names
from onionlab.experiment.load import load
from onionlab.experiment.schema import RELAY_ROLES, Figure, Settings
from onionlab.experiment.seeds import checked_seeds, parse_seeds

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
