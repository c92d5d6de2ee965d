"""The keys of `engine`: options of each engine, and of TGen's logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator

from onionlab.tornet import shadow_options
from onionlab.yamlfile.field_types import AutomaticSize, OptionType, PositiveTime, options_mapping
from onionlab.yamlfile.model import Model, key

RawOptions = dict[str, str | int | bool | None]


class TgenOptions(Model):
    """How TGen logs."""

    heartbeat_s: PositiveTime = key(
        "1 s", alias="heartbeat", description="interval of the log lines that have the goodput"
    )
    loglevel: Literal["message", "info"] = key(
        "message", description="`info` adds a line for every activity of every stream: large logs"
    )


def _options(types: Mapping[str, OptionType]) -> BeforeValidator:
    return options_mapping(types, shadow_options.REFUSED, shadow_options.SPOILING)


class ShadowOptions(Model):
    """Options of Shadow, passed on unchanged; see Shadow's configuration reference."""

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


class EngineSettings(Model):
    """Options of the engines and of TGen's logs."""

    tgen: TgenOptions = key({}, description="TGen's logs")
    shadow: ShadowOptions = key({}, description="only used if Shadow is the engine")
    uml: UmlOptions = key({}, description="only used if the embedded engine runs")
