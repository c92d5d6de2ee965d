"""Find options and parameters that Tor ignores because of other options and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from onionlab.experiment.settings import Scheduler, TorSettings
from onionlab.experiment.tor_options import (
    ELSEWHERE,
    INDISPENSABLE,
    RESERVED_OPTIONS,
    SOURCES_OF_PARAMETERS,
    HostOptions,
    Setting,
    groups_of,
)
from onionlab.experiment.tor_parameters import (
    CONSENSUS_PARAMETERS,
    PARAMETER_DEFAULTS,
    conditions_of,
    overrides_of,
)

FIXED_OPTIONS = INDISPENSABLE | {"clientonly", "orport"}
"""Options that an experiment cannot set."""


def find_ignored(
    tor: TorSettings, hosts: Sequence[HostOptions], voted: Mapping[str, Setting]
) -> Iterator[tuple[tuple[str, ...], Setting]]:
    """Yield the keys of options and parameters that Tor ignores, with the setting that causes it.

    An option or a parameter is ignored if none of its hosts reads it. A parameter is also ignored
    if an option overrides it on all hosts of one kind and variant.

    Args:
        tor: The experiment's settings.
        hosts: The options of all hosts.
        voted: The network's parameters, from `parameter_settings`.
    """
    places: dict[tuple[str, ...], tuple[str, str]] = {
        ("tor", "torrc", group, option): (option, group)
        for group, options in tor.torrc
        for option in options
    }
    if interval_s(tor.scheduler) != interval_s(None):
        places["tor", "scheduler", "run_interval"] = "KISTSchedRunInterval", "all"
    places |= {("tor", "consensus_params", name): (name, "all") for name in tor.consensus_params}
    for place, (name, group) in sorted(places.items()):
        concerned = [one.resolved for one in hosts if group in groups_of(one.role)]
        setting = unread_because(name, concerned, voted)
        if place[1] == "consensus_params":
            setting = _replacing(name, hosts) or setting
        if setting:
            yield place, setting


def interval_s(scheduler: Scheduler | None) -> float:
    """Return the interval of a scheduler, or the default one."""
    return (scheduler or Scheduler()).run_interval_s


def _replacing(parameter: str, hosts: Sequence[HostOptions]) -> Setting | None:
    """Return an option that overrides a parameter on all hosts of one kind and variant, or None."""
    kinds: dict[tuple[str, str], list[Setting | None]] = {}
    for host in hosts:
        group = groups_of(host.role)[-1]
        found = (
            replace(setting, needed=override.remedies)
            for override in overrides_of(parameter)
            if override.group == group
            and (setting := host.resolved.get(override.option.casefold())) is not None
            and override.holds(setting.values[-1])
        )
        kinds.setdefault((host.variant.name, group), []).append(next(found, None))
    return next((found[0] for found in kinds.values() if all(found)), None)


def unread_because(
    name: str, hosts: Iterable[Mapping[str, Setting]], parameters: Mapping[str, Setting]
) -> Setting | None:
    """Return a setting that keeps hosts from reading an option or a parameter, if all have one.

    Args:
        name: Name of the option or parameter.
        hosts: Options of each host, from `resolve_options`.
        parameters: From `parameter_settings`.
    """

    def reason(host: Mapping[str, Setting]) -> Setting | None:
        for one in conditions_of(name):
            key = one.option.casefold()
            setting = host.get(key)
            if setting is None or setting.values[-1].casefold() == "auto":
                setting = parameters.get(key)
            if setting is not None and one.holds(setting.values[-1]):
                return replace(setting, needed=one.remedies)
        return None

    found = [reason(host) for host in hosts]
    return found[0] if all(found) and found else None


def describe_ignored(setting: Setting) -> str:
    """Return a message that says why Tor ignores an option or a parameter, and what to do."""
    why = f"Tor ignores it, because {setting.source} sets {setting}; remove it"
    name = setting.name.casefold()
    if name in FIXED_OPTIONS or not setting.needed:
        return why
    if name == "circuitpolicy":
        return f"{why}, or compare other tor.variants"
    place, key = "", RESERVED_OPTIONS.get(name, "").removeprefix(ELSEWHERE)
    if key == "tor.scheduler.run_interval":
        return f"{why}, and set {key}"
    parameter = next((one for one in CONSENSUS_PARAMETERS if one.casefold() == name), "")
    if not key and parameter and setting.source in SOURCES_OF_PARAMETERS:
        key = f"tor.consensus_params.{parameter}"
    if not key:
        key, place = setting.name, " in tor.torrc"
    values = " or ".join(one.replace("<", "less than ") for one in setting.needed)
    return f"{why}, or set {key} to {values}{place}"


def parameter_settings(
    parameters: Mapping[str, int], *, has_defaults: bool = True
) -> dict[str, Setting]:
    """Return the consensus parameters that keep Tor from reading others, by name in lower case.

    Args:
        parameters: The parameters that authorities vote for.
        has_defaults: Whether to include Tor's own defaults. They are excluded if files of an
            imported network, which are not known yet, may set an option that overrides them.
    """
    default, vote = SOURCES_OF_PARAMETERS
    layers = [(default, PARAMETER_DEFAULTS)] if has_defaults else []
    return {
        name.casefold(): Setting(name, (str(value),), source)
        for source, values in (*layers, (vote, parameters))
        for name, value in values.items()
    }


def voted_parameters(authority: Mapping[str, Setting]) -> dict[str, int]:
    """Return the parameters that an authority with these options votes for."""
    voted = authority.get("consensusparams")
    return parse_parameters(voted.values[-1]) if voted else {}


def parse_parameters(text: str) -> dict[str, int]:
    """Return the parameters in a value of the option ConsensusParams."""
    pairs = (pair.partition("=") for pair in text.split())
    return {name: int(value) for name, _, value in pairs if value.lstrip("-").isdecimal()}
