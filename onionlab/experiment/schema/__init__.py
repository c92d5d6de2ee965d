"""What an experiment file may hold: the single definition of its keys.

The models are written as the YAML reads (a field's alias is its key in the file) and hold base
units after parsing, with the unit in the attribute's name. Everything else follows from them: the
JSON Schema, the reference in docs/reference/experiments.md and the error messages.

Defaults stand in the notation of the file ("1 s") and are parsed like any other value.
"""

from onionlab.experiment.schema.engine_settings import (
    EngineSettings,
    ShadowOptions,
    TgenOptions,
    UmlOptions,
)
from onionlab.experiment.schema.header import (
    COMPARING_FIGURE_KINDS,
    DEFAULT_FIGURE_KINDS,
    FIGURE_KINDS,
    TORNET_FIGURE_KINDS,
    EndpointEntry,
    ExperimentFile,
    Figure,
    Header,
    LevelEntry,
    PublishedCellTimes,
    TorHeader,
)
from onionlab.experiment.schema.names import (
    RELAY_ROLES,
    AnyClassName,
    LevelName,
    MetricName,
)
from onionlab.experiment.schema.network_settings import (
    Clients,
    NetworkSettings,
    RelayRole,
    Relays,
    Servers,
)
from onionlab.experiment.schema.settings import (
    FIRST_CONSENSUS_S,
    ONION_SERVICES_START_S,
    Settings,
    TimeSettings,
)
from onionlab.experiment.schema.tor_settings import Scheduler, Torrc, TorSettings
from onionlab.experiment.schema.traffic_settings import Pause, Start, TrafficClass

__all__ = [
    "COMPARING_FIGURE_KINDS",
    "DEFAULT_FIGURE_KINDS",
    "FIGURE_KINDS",
    "FIRST_CONSENSUS_S",
    "ONION_SERVICES_START_S",
    "RELAY_ROLES",
    "TORNET_FIGURE_KINDS",
    "AnyClassName",
    "Clients",
    "EndpointEntry",
    "EngineSettings",
    "ExperimentFile",
    "Figure",
    "Header",
    "LevelEntry",
    "LevelName",
    "MetricName",
    "NetworkSettings",
    "Pause",
    "PublishedCellTimes",
    "RelayRole",
    "Relays",
    "Scheduler",
    "Servers",
    "Settings",
    "ShadowOptions",
    "Start",
    "TgenOptions",
    "TimeSettings",
    "TorHeader",
    "TorSettings",
    "Torrc",
    "TrafficClass",
    "UmlOptions",
]
