"""Tor networks made by ``tornettools generate``: read, checked, kept below networks/.

A tornet is what tornettools calls the directory that ``generate`` writes: hosts with keys, torrc
files, TGen's graphs and models, and Shadow's configuration. It is imported once, as one seed of a
set of networks; runs are composed from the copy. https://github.com/shadow/tornettools
"""

from onionlab.tornet.keeping import (
    KeptTornet,
    generate_log_of,
    import_tornets,
    load_tornet,
    seeds_of,
)
from onionlab.tornet.model import Role, Tornet, TornetHost, TornetProcess
from onionlab.tornet.path_graph import Path, PathGraph, PathNode
from onionlab.tornet.reading import FoundTornet, read_tornet

__all__ = [
    "FoundTornet",
    "KeptTornet",
    "Path",
    "PathGraph",
    "PathNode",
    "Role",
    "Tornet",
    "TornetHost",
    "TornetProcess",
    "generate_log_of",
    "import_tornets",
    "load_tornet",
    "read_tornet",
    "seeds_of",
]
