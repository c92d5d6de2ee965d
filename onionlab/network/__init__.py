"""Generate a network from an experiment's settings and a seed."""

from onionlab.network.geography import load_geography, load_relays
from onionlab.network.layout import RELAY_ROLES, Host, Network, Place
from onionlab.network.sample import NetworkRequest, RelayGroup, sample_network

__all__ = [
    "RELAY_ROLES",
    "Host",
    "Network",
    "NetworkRequest",
    "Place",
    "RelayGroup",
    "load_geography",
    "load_relays",
    "sample_network",
]
