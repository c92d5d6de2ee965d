"""What makes the settings of a `peers` experiment impossible though each value is well formed."""

from __future__ import annotations

from collections.abc import Iterator

from onionlab.experiment.checks import Finding, KnownNames
from onionlab.experiment.peers import PeersSettings
from onionlab.yamlfile.units import nearest, show


def impossible(settings: PeersSettings, known: KnownNames) -> Iterator[Finding]:
    """Everything for which a run of these settings could not give a result."""
    own = settings.libtorrent
    if known.peers is not None:
        for name in dict.fromkeys((*own.variants, own.baseline)):
            if name not in known.peers:
                key = "variants" if name in own.variants else "baseline"
                message = f"no variant {show(name)} of libtorrent{nearest(name, known.peers)}"
                yield Finding(("libtorrent", key), message)
    for name in own.variants:
        if own.variants.count(name) > 1:
            yield Finding(("libtorrent", "variants"), f"{show(name)} is listed twice")
            break
    if own.baseline not in own.variants:
        yield Finding(("libtorrent", "baseline"), "expected one of the variants")
