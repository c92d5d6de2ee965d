"""TGen's Markov models, checked by the reader that the embedded engine plays them with.

It refuses what TGen would refuse, and that by which TGen would abort or send forever: a model that
passes can be played on any engine.
"""

from __future__ import annotations

from pathlib import Path

from onionlab.engines.uml.traffic.graphml import MAX_BYTES
from onionlab.engines.uml.traffic.markov_model import parse_model
from onionlab.errors import UserError


def never_ends(packet_model: bytes) -> bool:
    """Return whether only a timeout ends a stream with this packet model. Raises ValueError."""
    return not parse_model("packet", packet_model).ends


def read_markov_model(path: Path, shown: str) -> bytes:
    """Return the content of a model's file.

    shown: what messages call the file. Raises UserError that says what is wrong with it.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    # A path with a null byte in it is a ValueError.
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            f"{shown}: this Markov model cannot be read: {reason}",
            "paths of models are relative to the checkout",
        ) from error
    try:
        parse_model(path.name, content)
    except ValueError as error:
        raise UserError(
            f"{shown}: no Markov model of TGen that can be played: {error}",
            "the format: doc/TGen-Markov-Models.md in TGen's repository; `tornettools generate` "
            "writes such models to the conf/ of its networks",
        ) from error
    return content
