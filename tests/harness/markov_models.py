"""Three small Markov models, and the bytes that a client sends and receives with these models."""

from __future__ import annotations

import re
from pathlib import Path

from uml.markov_support import drawn_payload, emits, logged_payloads, model_graphml, to

from onionlab.engines.uml.traffic.draws import GlibRandom
from onionlab.engines.uml.traffic.markov_model import parse_model

# A flow starts every one to three seconds, and its only stream starts 1 to 2 ms after it. So no two
# streams start at the same time, and streams get their seeds in a fixed order.
FLOW = model_graphml(
    ("s0", "s1"), [to("s0", "s1"), to("s1", "s1"), emits("s1", "+", "uniform", low=1e6, high=3e6)]
)
STREAM = model_graphml(
    ("s0", "s1", "s2"),
    [
        to("s0", "s1"),
        to("s1", "s2"),
        emits("s1", "+", "uniform", low=1000, high=2000),
        emits("s2", "F", "uniform", low=0, high=0),
    ],
)
PACKET = model_graphml(
    ("s0", "s1", "s2"),
    [
        to("s0", "s1"),
        to("s1", "s1", 0.95),
        to("s1", "s2", 0.05),
        emits("s1", "-", "exponential", 4, rate=0.001),
        emits("s1", "+", "uniform", 1, low=50, high=20_000),
        emits("s2", "F", "uniform", low=0, high=0),
    ],
)
MODELS = {"flow": FLOW, "stream": STREAM, "packet": PACKET}


def write_models(folder: Path) -> dict[str, str]:
    """Write the models to files. Return the settings with which a class of clients uses them."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in MODELS.items():
        (folder / f"{kind}.graphml").write_text(text)
    return {f"{kind}_model": f"{folder}/{kind}.graphml" for kind in MODELS}


def seed_of(graph: bytes) -> int:
    """Return `markovmodelseed` of a client's graph."""
    (key,) = re.findall(rb'id="(\w+)" for="node" attr.name="markovmodelseed"', graph)
    (seed,) = re.findall(rb'<data key="%s">(\d+)</data>' % key, graph)
    return int(seed)


def drawn_streams(model_seed: int, count: int) -> list[tuple[int, int]]:
    """Return the payload that each of a client's first streams has to send and receive, in bytes.

    model_seed: the seed in the client's graph. count: the number of streams.
    """
    model = parse_model("packet.graphml", PACKET.encode())
    seeds = GlibRandom(model_seed)
    seeds.integer()  # seed of the flow model
    found = []
    for _ in range(count):
        seeds.integer()  # seed of the stream model
        found.append(drawn_payload(model, seeds.integer()))
    return found


def logged_streams(log: str, count: int) -> list[tuple[int, int] | None]:
    """Return the payload that each of the first streams in a log sent and received, in bytes.

    None stands for a stream that failed. log: the log of TGen or of the traffic driver.
    """
    payloads = logged_payloads(log)
    ids = sorted({int(number) for number in re.findall(r"stream \[id=(\d+),", log)})
    return [payloads.get(number) for number in ids[:count]]
