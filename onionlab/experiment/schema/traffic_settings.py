"""The keys of `traffic`: what the clients of each class fetch, and when."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from onionlab.experiment.schema.names import COUNT, IDENTIFIER
from onionlab.yamlfile import units
from onionlab.yamlfile.field_types import (
    Derived,
    OptionalTime,
    OptionalTimeSpan,
    PositiveTime,
    Size,
    Text,
    Time,
)
from onionlab.yamlfile.model import Model, key

MAX_PAUSE_CHOICES = 10_000
MAX_STREAMS = 1000
MARKOV = "markov"
MODEL_KEYS = ("flow_model", "stream_model", "packet_model")
"""What a class of kind `markov` plays, each a file."""


class Pause(Model):
    """How long a client waits between two streams: none, or one of uniform and choices."""

    uniform_s: OptionalTimeSpan = key(
        None,
        alias="uniform",
        validate_default=False,
        description="lowest and highest pause; all pauses in steps of `step` are equally likely",
    )
    step_s: PositiveTime = key(
        "1 s", alias="step", description="distance of the pauses that `uniform` draws from"
    )
    choices_s: tuple[Time, ...] = key(
        (), alias="choices", strict=False, description="pauses, each equally likely"
    )

    @model_validator(mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        if value == "none":
            return {}
        if not value or not isinstance(value, dict):
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

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"const": "none"}, handler(core_schema)]}

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

    after_s: Time = key(
        "0 s",
        alias="after",
        description="from the end of the bootstrap to the first client's start",
    )
    spread_s: Time = key(
        "0 s", alias="spread", description="the clients' starts are drawn uniformly from this span"
    )


class TrafficClass(Model):
    """One class of clients; each of them fetches one file after the other."""

    count: Annotated[int, COUNT] = key(description="how many clients")
    request_bytes: Size | None = key(
        None, alias="request", description="size of each download; required except with `markov`"
    )
    pause: Pause = key(
        "none", description="between the end of a download and the next one: `none` or a rule"
    )
    timeout_s: OptionalTime = key(
        alias="timeout", description="time after which a download is aborted"
    )
    stallout_s: OptionalTime = key(
        alias="stallout", description="time without a byte after which a download is aborted"
    )
    start: Start = key({}, description="when its clients begin")
    streams: Annotated[int, Field(ge=1, le=MAX_STREAMS)] = key(
        1, description="number of parallel downloads of each client"
    )
    stagger_s: Time = key(
        "0 s", alias="stagger", description="between the starts of a client's parallel downloads"
    )
    repeat: Literal["forever", "once"] = key(
        "forever", description="whether each download is followed by another one"
    )
    circuit: Literal["any", "one"] = key(
        "any",
        description="`one`: a run counts only if its log shows that all streams of each client "
        "shared one circuit of guard, middle and exit; needs `repeat: once`",
    )
    to: Literal["servers", "onion-services"] = key(
        "servers",
        description="the hosts that they fetch from; with `onion-services` a run counts only if "
        "its log shows that all their streams went over rendezvous circuits",
    )
    kind: Literal["tgen", "pieces", "markov"] = key(
        "tgen",
        description="`tgen`: a download is one stream; `pieces`: libtorrent over TCP fetches it "
        "from one server in requests of 16 KiB (see docs/explanation/slowstart.md); `markov`: "
        "users of TGen's Markov models, as load alone (see "
        "docs/how-to/play-markov-models.md)",
    )
    request_rule: Annotated[str, IDENTIFIER] = key(
        "slow-start",
        description="with `pieces`: a variant of `libtorrent-patches/variants.yaml`, whose rule "
        "decides how many requests are outstanding",
    )
    flow_model: Text | None = key(
        None,
        description="with `markov`: file with the model of when circuits begin, relative to the "
        "checkout",
    )
    stream_model: Text | None = key(
        None, description="the same, of when the streams of a circuit begin"
    )
    packet_model: Text | None = key(
        None, description="the same, of what both sides of a stream send, and when"
    )
    full_count: Derived[int] = 0
    """`count` before SCALE."""

    @property
    def is_load(self) -> bool:
        """Whether its clients are there for the load alone: no times of their streams count."""
        return self.kind == MARKOV

    @property
    def models(self) -> dict[str, str]:
        """The files of its Markov models, by their keys; empty with any other kind."""
        return {name: path for name in MODEL_KEYS if (path := getattr(self, name)) is not None}
