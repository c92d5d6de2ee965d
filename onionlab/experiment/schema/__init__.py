"""What an experiment file may hold: the single definition of its keys.

A field's alias is its key in the file. Attributes have base units, with the unit in the name. The
JSON Schema, the table of keys and the error messages are made from the models.

Defaults are written as in a file ("1 s") and are parsed like any other value.
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
    EndpointEntry,
    ExperimentFile,
    Figure,
    Header,
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
    "FIRST_CONSENSUS_S",
    "ONION_SERVICES_START_S",
    "RELAY_ROLES",
    "AnyClassName",
    "Clients",
    "EndpointEntry",
    "EngineSettings",
    "ExperimentFile",
    "Figure",
    "Header",
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
