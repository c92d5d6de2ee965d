"""Check and measure TGen's Markov models with the parser of the embedded engine.

The parser rejects models that TGen rejects, and faulty models with which TGen would abort or never
stop sending. Every engine can play a model that the parser accepts.
"""

from __future__ import annotations

from pathlib import Path

from onionlab.engines.uml.traffic.markov_model import (
    INTERNAL_FLOW_MODEL,
    INTERNAL_STREAM_MODEL,
    Event,
    MarkovModel,
    parse_model,
)
from onionlab.engines.uml.traffic.markov_walk import MarkovWalk
from onionlab.errors import UserError

WALK_STEPS = 2000
"""The number of steps of a walk that measures a model. With so many steps, the mean rate of the
model's events is accurate to a few per cent.
"""
MAX_FLOW_S = 600.0
"""The assumed duration of a flow whose stream model never ends: the longest timeout that
tornettools sets for its Markov clients.
"""


def never_ends(packet_model: bytes) -> bool:
    """Return whether a stream with this packet model ends only by a timeout, never by itself.

    Raises ValueError if the model cannot be played.
    """
    return not parse_model("packet", packet_model).ends


def mean_streams_per_s(flow_model: bytes | None, stream_model: bytes | None) -> float:
    """Return the mean number of streams that a client starts per second.

    flow_model, stream_model: the contents of the models' files; None means TGen's default model.
    Raises ValueError if a model cannot be played.
    """
    flows = INTERNAL_FLOW_MODEL if flow_model is None else parse_model("flow", flow_model)
    streams = INTERNAL_STREAM_MODEL if stream_model is None else parse_model("stream", stream_model)
    flows_begun, flow_time_s, _ = _count_begun(flows)
    begun, time_s, ends = _count_begun(streams)
    streams_per_flow = begun / ends if ends else begun / time_s * MAX_FLOW_S
    return flows_begun / flow_time_s * streams_per_flow


def _count_begun(model: MarkovModel) -> tuple[int, float, int]:
    """Walk `WALK_STEPS` steps through a model. After each event END, restart the walk.

    Return the number of flows or streams that the walk starts, the walk's duration in s, and how
    often END occurred.
    """
    walk = MarkovWalk(model, seed=1)
    begun, time_us, ends = 0, 0, 0
    for _ in range(WALK_STEPS):
        step = walk.step()
        begun += step.event in (Event.TO_SERVER, Event.TO_ORIGIN)
        time_us += step.delay_us
        if walk.ended:
            ends += 1
            walk.reset()
    return begun, max(time_us / 1e6, 1e-6), ends


def read_markov_model(path: Path, shown: str) -> bytes:
    """Return the content of a model's file.

    shown: the file's name in messages. Raises UserError if it cannot be read or played.
    """
    try:
        content = path.read_bytes()
        parse_model(path.name, content)
    # Reading a path that contains a null byte also raises ValueError.
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"{shown}: not a valid Markov model of TGen: {reason}",
            "paths of models are relative to the checkout; the format is described in "
            "doc/TGen-Markov-Models.md of TGen; `tornettools generate` writes such models to the "
            "conf/ of its networks",
        ) from error
    return content
