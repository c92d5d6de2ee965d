"""The keys of `traffic`: what the clients of each class fetch, and when."""

from __future__ import annotations

from typing import Annotated

from pydantic import model_validator

from onionlab.experiment.schema.names import COUNT, IDENTIFIER
from onionlab.yamlfile import kinds, units
from onionlab.yamlfile.model import Model, key

MAX_PAUSE_CHOICES = 10_000
MAX_STREAMS = 1000
MARKOV = "markov"
MODEL_KEYS = ("flow_model", "stream_model", "packet_model")
"""What a class of kind `markov` plays, each a file."""


class Pause(Model):
    """How long a client waits between two streams: none, or one of uniform and choices."""

    word = "none"

    uniform_s: Annotated[tuple[float, float] | None, kinds.time_span()] = key(
        None,
        alias="uniform",
        validate_default=False,
        description="lowest and highest pause; all pauses in steps of `step` are equally likely",
    )
    step_s: Annotated[float, kinds.time(positive=True)] = key(
        "1 s", alias="step", description="distance of the pauses that `uniform` draws from"
    )
    choices_s: tuple[Annotated[float, kinds.time()], ...] = key(
        (), alias="choices", strict=False, description="pauses, each equally likely"
    )

    @model_validator(mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        if value == cls.word:
            return {}
        if value == {}:
            raise ValueError("expected uniform or choices; without a pause write none")
        return value

    @model_validator(mode="after")
    def _one_rule(self) -> Pause:
        given = self.model_fields_set
        if {"uniform_s", "choices_s"} <= given:
            raise ValueError("expected one of uniform and choices, got both")
        if "choices_s" in given and not self.choices_s:
            raise ValueError("expected at least one pause in choices; without a pause write none")
        if "step_s" in given and self.uniform_s is None:
            raise ValueError("expected uniform beside step")
        if self.uniform_s is not None:
            low, high, step = (units.milliseconds(t) for t in (*self.uniform_s, self.step_s))
            if (high - low) % step:
                raise ValueError("expected a uniform span that is a multiple of step")
            if (high - low) // step >= MAX_PAUSE_CHOICES:
                raise ValueError(f"expected at most {MAX_PAUSE_CHOICES} pauses; make step larger")
        return self

    @property
    def times_s(self) -> tuple[float, ...]:
        """The pauses to draw from, each equally likely; empty if there is no pause.

        A list, because that is what TGen's pause action draws from.
        """
        if self.uniform_s is None:
            return self.choices_s
        low, high, step = (units.milliseconds(t) for t in (*self.uniform_s, self.step_s))
        return tuple(units.seconds(ms) for ms in range(low, high + 1, step))


class Start(Model):
    """When the clients of a class begin."""

    after_s: Annotated[float, kinds.time()] = key(
        "0 s",
        alias="after",
        description="from the end of the bootstrap to the first client's start",
    )
    spread_s: Annotated[float, kinds.time()] = key(
        "0 s", alias="spread", description="the clients' starts are drawn uniformly from this span"
    )


class TrafficClass(Model):
    """One class of clients; each of them fetches one file after the other."""

    derived = frozenset({"full_count"})

    count: Annotated[int, COUNT] = key(description="how many clients")
    request_bytes: Annotated[int, kinds.size()] | None = key(
        None, alias="request", description="size of each download; required but with `markov`"
    )
    pause: Pause = key(
        "none", description="between a download's end and the next: `none` or a rule"
    )
    timeout_s: Annotated[float | None, kinds.optional_time()] = key(
        alias="timeout", description="a download that takes longer is given up"
    )
    stallout_s: Annotated[float | None, kinds.optional_time()] = key(
        alias="stallout", description="a download that gets no byte for this long is given up"
    )
    start: Start = key({}, description="when its clients begin")
    streams: Annotated[int, kinds.whole_number(1, MAX_STREAMS)] = key(
        1, description="how many downloads each client makes side by side"
    )
    stagger_s: Annotated[float, kinds.time()] = key(
        "0 s", alias="stagger", description="between the starts of a client's parallel downloads"
    )
    repeat: Annotated[str, kinds.choice("forever", "once")] = key(
        "forever", description="whether a download is followed by the next"
    )
    circuit: Annotated[str, kinds.choice("any", "one")] = key(
        "any",
        description="`one`: a run counts only if its log shows that all streams of each client "
        "shared one circuit of guard, middle and exit; takes `repeat: once`",
    )
    to: Annotated[str, kinds.choice("servers", "onion-services")] = key(
        "servers",
        description="whom they fetch from; with `onion-services` a run counts only if its log "
        "shows that all their streams went over rendezvous circuits",
    )
    kind: Annotated[str, kinds.choice("tgen", "pieces", "markov")] = key(
        "tgen",
        description="`tgen`: a download is one stream; `pieces`: libtorrent over TCP fetches it "
        "from one server in requests of 16 KiB (see docs/explanation/slowstart.md); `markov`: "
        "users as Markov models of TGen have them, load alone (see "
        "docs/how-to/play-markov-models.md)",
    )
    request_rule: Annotated[str, IDENTIFIER] = key(
        "slow-start",
        description="with `pieces`: a variant of `libtorrent-patches/variants.yaml`, whose rule "
        "decides how many requests are outstanding",
    )
    flow_model: Annotated[str, kinds.text()] | None = key(
        None,
        description="with `markov`: file with the model of when circuits begin, relative to the "
        "checkout",
    )
    stream_model: Annotated[str, kinds.text()] | None = key(
        None, description="the same, of when the streams of a circuit begin"
    )
    packet_model: Annotated[str, kinds.text()] | None = key(
        None, description="the same, of what both sides of a stream send, and when"
    )
    full_count: int = 0
    """`count` before SCALE."""

    @property
    def is_load(self) -> bool:
        """Whether its clients are there for the load alone: no times of their streams count."""
        return self.kind == MARKOV

    @property
    def models(self) -> dict[str, str]:
        """The files of its Markov models, by their keys; empty with any other kind."""
        return {name: path for name in MODEL_KEYS if (path := getattr(self, name)) is not None}
