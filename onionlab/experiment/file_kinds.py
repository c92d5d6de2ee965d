"""The kinds of experiment: with Tor, with networks of tornettools, and with peers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from onionlab.experiment.checks import (
    Finding,
    KnownNames,
    impossible,
    questionable,
    unknown_parameters,
)
from onionlab.experiment.peers import KIND as PEERS
from onionlab.experiment.peers import PEER_FIGURE_KINDS, PeersFile, PeersHeader, PeersSettings
from onionlab.experiment.peers_checks import impossible as peers_impossible
from onionlab.experiment.schema import (
    DEFAULT_FIGURE_KINDS,
    ExperimentFile,
    Header,
    Settings,
    TorHeader,
)
from onionlab.experiment.tornettools import KIND as TORNETTOOLS
from onionlab.experiment.tornettools import (
    TORNET_FIGURE_KINDS,
    TornetFile,
    TornetHeader,
    TornetSettings,
)
from onionlab.experiment.tornettools_checks import impossible as tornet_impossible
from onionlab.yamlfile.model import Model
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import show

AnySettings = Settings | PeersSettings | TornetSettings
"""Settings of a run, of any kind of experiment."""


@dataclass(frozen=True)
class FileKind:
    """A kind of experiment: which keys its files have, and what can be wrong with them.

    Attributes:
        file: all keys of a file.
        header: those that are not settings.
        settings: those that are.
        figures: kinds of figures that are drawn where a file names none.
        impossible: what would make a run of the settings fail.
        questionable: what is allowed, but hardly meant.
    """

    file: type[Model]
    header: type[Header[Any, Any]]
    settings: type[Settings] | type[PeersSettings] | type[TornetSettings]
    figures: tuple[str, ...]
    impossible: Callable[[Any, KnownNames], Iterable[Finding]]
    questionable: Callable[[Any], Iterable[Finding]]

    @property
    def sections(self) -> tuple[str, ...]:
        """The keys of settings."""
        return tuple(self.settings.model_fields)


TOR_KIND = FileKind(
    ExperimentFile, TorHeader, Settings, DEFAULT_FIGURE_KINDS, impossible, questionable
)
FILE_KINDS = {
    PEERS: FileKind(
        PeersFile,
        PeersHeader,
        PeersSettings,
        PEER_FIGURE_KINDS,
        peers_impossible,
        lambda settings: (),
    ),
    TORNETTOOLS: FileKind(
        TornetFile,
        TornetHeader,
        TornetSettings,
        TORNET_FIGURE_KINDS,
        tornet_impossible,
        unknown_parameters,
    ),
}
"""By the word at a file's key `kind`; a file without that key is about Tor."""


def kind_of(tree: Node) -> tuple[str | None, FileKind, list[Problem]]:
    """The word at the key `kind`, what it means, and what is wrong with it."""
    entry = tree.get("kind")
    if entry is None:
        return None, TOR_KIND, []
    if isinstance(entry.value, str) and entry.value in FILE_KINDS:
        return entry.value, FILE_KINDS[entry.value], []
    expected = f"expected {' or '.join(FILE_KINDS)}, or no key `kind` for an experiment with Tor"
    return None, TOR_KIND, [entry.problem(f"{expected}, got {show(entry.value)}")]
