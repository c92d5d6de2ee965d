"""The keys of `traffic` (what clients fetch, and when) and of `engine`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from onionlab.experiment.network_settings import COUNT, IDENTIFIER
from onionlab.tornet import shadow_options
from onionlab.yamlfile import units
from onionlab.yamlfile.field_types import (
    AutomaticSize,
    Derived,
    OptionalTime,
    OptionalTimeSpan,
    OptionType,
    PositiveTime,
    Size,
    Text,
    Time,
    options_mapping,
)
from onionlab.yamlfile.model import Model, key

MAX_PAUSE_CHOICES = 10_000
MAX_STREAMS = 1000
MARKOV = "markov"
MODEL_KEYS = ("flow_model", "stream_model", "packet_model")
"""The keys of the files that a class of kind `markov` needs."""


class Pause(Model):
    """The pause of a client between two streams: none, a uniform distribution, or choices."""

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
        if value.get("choices") == []:
            raise ValueError("expected at least one pause in choices; without a pause write none")
        if "step" in value and "uniform" not in value:
            raise ValueError("expected uniform together with step")
        return value

    @model_validator(mode="after")
    def _one_rule(self) -> Pause:
        if self.uniform_s is not None and self.choices_s:
            raise ValueError("expected one of uniform and choices, got both")
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
        """Return the pauses to draw from, each equally likely; empty if there is no pause.

        The pauses are listed one by one, because TGen's pause action draws from a list.
        """
        if self.uniform_s is None:
            return self.choices_s
        low, high, step = (units.milliseconds(t) for t in (*self.uniform_s, self.step_s))
        return tuple(units.seconds(ms) for ms in range(low, high + 1, step))


class Start(Model):
    """The start times of a class's clients."""

    after_s: Time = key(
        "0 s",
        alias="after",
        description="from the end of the bootstrap to the first client's start",
    )
    spread_s: Time = key(
        "0 s", alias="spread", description="the clients' starts are drawn uniformly from this span"
    )


class TrafficClass(Model):
    """One class of clients. A client downloads files, or follows Markov models (`kind: markov`)."""

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
        "its log shows that all their streams went over rendezvous circuits (clients of Arti log "
        "no circuits, and are not checked)",
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
    """The value of `count` in the file, before SCALE multiplies it."""

    @property
    def is_load(self) -> bool:
        """Return whether the clients are background load, which has no metrics of stream times."""
        return self.kind == MARKOV

    @property
    def models(self) -> dict[str, str]:
        """Return the file of each Markov model of the class, by the key that names the file."""
        return {name: path for name in MODEL_KEYS if (path := getattr(self, name)) is not None}


RawOptions = dict[str, str | int | bool | None]


class TgenOptions(Model):
    """Options of TGen's log."""

    heartbeat_s: PositiveTime = key(
        "1 s", alias="heartbeat", description="interval of the log lines that have the goodput"
    )
    loglevel: Literal["message", "info"] = key(
        "message", description="`info` adds a line for every activity of every stream: large logs"
    )


def _options(types: Mapping[str, OptionType]) -> BeforeValidator:
    return options_mapping(types, shadow_options.REFUSED, shadow_options.SPOILING)


class ShadowOptions(Model):
    """Options of Shadow, which are passed on unchanged; see Shadow's configuration reference."""

    general: Annotated[RawOptions, _options(shadow_options.GENERAL)] = key(
        {}, description="Shadow's `general` section"
    )
    experimental: Annotated[RawOptions, _options(shadow_options.EXPERIMENTAL)] = key(
        {}, description="Shadow's `experimental` section"
    )
    host_option_defaults: Annotated[RawOptions, _options(shadow_options.HOST_OPTION_DEFAULTS)] = (
        key({}, description="Shadow's `host_option_defaults` section")
    )


class UmlOptions(Model):
    """Options of the embedded engine. Only `congestion_control` affects results."""

    congestion_control: Literal["cubic", "reno"] = key(
        "cubic",
        description="TCP's congestion control on all hosts; `cubic` is what Linux has, `reno` what "
        "Shadow's own TCP has",
    )
    memory_bytes: AutomaticSize = key(
        "automatic",
        alias="memory",
        description="limit for all hosts together; `automatic`: what a network of this size needs",
    )
    stall_timeout_s: PositiveTime = key(
        "120 s",
        alias="stall_timeout",
        description="a run fails if a second of simulated time needs more wall time than this",
    )


class Engines(Model):
    """Options of the engines. Shadow's options override options of an imported network."""

    shadow: ShadowOptions = key({}, description="only used if Shadow is the engine")
    uml: UmlOptions = key({}, description="only used if the embedded engine runs")


class EngineSettings(Engines):
    """Options of the engines and of TGen's logs."""

    tgen: TgenOptions = key({}, description="TGen's logs")
