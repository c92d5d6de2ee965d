"""The keys of `engine`: options of each engine, and of TGen's logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from onionlab.tornet import shadow_options
from onionlab.yamlfile import kinds
from onionlab.yamlfile.model import Model, key

RawOptions = dict[str, str | int | bool | None]


class TgenOptions(Model):
    """How TGen logs."""

    heartbeat_s: Annotated[float, kinds.time(positive=True)] = key(
        "1 s", alias="heartbeat", description="between the log lines that goodput is read from"
    )
    loglevel: Annotated[str, kinds.choice("message", "info")] = key(
        "message", description="`info` adds a line for every activity of every stream: large logs"
    )


def _options(takes: Mapping[str, kinds.Option]) -> kinds.Kind:
    return kinds.raw_options("Shadow", takes, shadow_options.REFUSED, shadow_options.SPOILING)


class ShadowOptions(Model):
    """Options of Shadow, handed on as written; see Shadow's configuration reference."""

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
    """Options of the embedded engine. Only `congestion_control` bears on results."""

    congestion_control: Annotated[str, kinds.choice("cubic", "reno")] = key(
        "cubic",
        description="TCP's congestion control on all hosts; `cubic` is what Linux has, `reno` what "
        "Shadow's own TCP has",
    )
    memory_bytes: Annotated[int | None, kinds.automatic_size()] = key(
        "automatic",
        alias="memory",
        description="the most that all hosts together may take; `automatic`: what a network of "
        "this size needs",
    )
    stall_timeout_s: Annotated[float, kinds.time(positive=True)] = key(
        "120 s",
        alias="stall_timeout",
        description="a run is given up when a second of simulated time takes longer than this",
    )


class EngineSettings(Model):
    """How the simulation is done, as far as it is not the network's or Tor's matter."""

    tgen: TgenOptions = key({}, description="TGen's logs")
    shadow: ShadowOptions = key({}, description="only read when Shadow is the engine")
    uml: UmlOptions = key({}, description="only read when the embedded engine runs")
