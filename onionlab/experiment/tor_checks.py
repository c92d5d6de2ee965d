"""Check variants and options for anything that Tor would refuse or silently ignore."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from onionlab.experiment.settings import Torrc, TorSettings
from onionlab.experiment.tor_options import (
    INDISPENSABLE,
    OWN_KEYS,
    RESERVED_OPTIONS,
    SERVICE_OPTIONS,
    SOCKS_PORT,
    SOURCES_OF_PARAMETERS,
    TORRC_SOURCE,
    HostOptions,
    Setting,
    changed_scheduler_options,
    default_layers,
    experiment_layers,
    groups_of,
    keep_options,
)
from onionlab.experiment.tor_parameters import (
    CONSENSUS_PARAMETERS,
    LIMITS,
    PARAMETER_DEFAULTS,
    SOCKS_FLAGS,
    conditions_of,
    overrides_of,
)
from onionlab.programs.tor.variants import TorVariant
from onionlab.yamlfile.units import nearest, show

CC_ALGORITHMS = (0, 2)  # fixed windows, Vegas; Tor 0.4.9 replaces other values by its default

FIXED_OPTIONS = INDISPENSABLE | {"clientonly", "orport"}
"""Options, in lower case, whose values runs need. Messages do not propose other values."""

Finding = tuple[tuple[str, ...], str]
"""Path of keys below the settings, and the problem there."""


def describe_unknown(what: str, name: str, known: Collection[str]) -> str:
    """Return a message about an unknown name, which lists the known names."""
    names = ", ".join(sorted(known))
    return f"unknown {what} {show(name)}; known are {names}{nearest(name, sorted(known))}"


def check_variants(tor: TorSettings, known: Mapping[str, TorVariant] | None) -> Iterator[Finding]:
    """Yield errors in the variants of an experiment with Tor."""
    variants, baseline = tor.variants, tor.baseline
    for position, variant in enumerate(variants):
        if variant in variants[:position]:
            yield ("tor", "variants"), f"{show(variant)} is listed twice"
        elif known is not None and variant not in known:
            yield ("tor", "variants"), describe_unknown("variant", variant, known)
    if baseline not in variants:
        names = ", ".join(variants)
        message = f"expected one of this experiment's variants ({names}), got {show(baseline)}"
        yield ("tor", "baseline"), message + nearest(baseline, variants)


def check_tor_options(
    tor: TorSettings,
    known: Mapping[str, TorVariant] | None,
    *,
    defaults: Mapping[str, str] | None = None,
    own: Mapping[str, str] | None = None,
) -> Iterator[Finding]:
    """Yield errors for parameters and options that Tor would reject or ignore.

    Args:
        tor: The settings to check.
        known: All variants by name; None if they are not known.
        defaults: Name of a file of configs/tor -> its text; None for imported networks, which have
            their own files.
        own: Option that relays' own torrc files contain, in lower case -> the key of the experiment
            that puts it there.
    """
    variants = _variants(tor, known)
    own = own or {}
    hosts = _hosts(tor, variants, defaults)
    voted = parameter_settings(tor.consensus_params, has_defaults=defaults is not None)
    for variant in variants:
        its = [one.resolved for one in hosts if one.variant is variant]
        for option in variant.torrc:
            if option.casefold() in own:
                message = f"{own[option.casefold()]} overrides {option} of {variant.name}"
                yield ("tor", "variants"), message
            ignored = unread_because(option, its, voted)
            if ignored:
                message = f"{option} of {variant.name}: {describe_ignored(ignored)}"
                yield ("tor", "variants"), message
    yield from _torrc(tor.torrc, variants, own, port=None if defaults is None else SOCKS_PORT)
    if defaults is not None:
        yield from find_without_service(hosts)
    misspelt = dict(_misspelt_parameters(tor.consensus_params))
    for place, ignored in find_ignored(tor, hosts, voted):
        if place[1] != "consensus_params" or place[2] not in misspelt:
            yield place, describe_ignored(ignored)


def find_unknown_to_tor(
    tor: TorSettings,
    known: Mapping[str, TorVariant] | None,
    *,
    defaults: Mapping[str, str] | None = None,
) -> Iterator[Finding]:
    """Yield names and values that Tor 0.4.9 does not accept, but that a changed Tor may accept.

    The arguments are the same as in `check_tor_options`.
    """
    for parameter, meant in _misspelt_parameters(tor.consensus_params):
        message = f"Tor 0.4.9 reads no parameter of this name{meant}"
        yield ("tor", "consensus_params", parameter), message
    yield from _check_values(tor.consensus_params)
    for option, lines in sorted(tor.torrc.client.items()):
        if option.casefold() == "socksport":
            for flag in lines[0].split()[1:]:
                is_known = flag.casefold().removeprefix("no") in SOCKS_FLAGS
                if not is_known and not flag.casefold().startswith("sessiongroup="):
                    message = f"Tor has no flag {flag} of SocksPort"
                    yield ("tor", "torrc", "client", option), message
    yield from _limited_options(_hosts(tor, _variants(tor, known), defaults))


def has_changed_tor(tor: TorSettings, known: Mapping[str, TorVariant] | None) -> bool:
    """Return whether a variant is built from a commit or a tarball, which can have changes."""
    return any(variant.has_own_code for variant in _variants(tor, known))


def _variants(tor: TorSettings, known: Mapping[str, TorVariant] | None) -> list[TorVariant]:
    return [known[name] for name in tor.variants if known and name in known]


def _hosts(
    tor: TorSettings, variants: Sequence[TorVariant], defaults: Mapping[str, str] | None
) -> list[HostOptions]:
    """Return the options of a host of each kind and variant."""
    kept = keep_options(defaults or {}, tor.consensus_params)
    return [
        HostOptions(
            role,
            variant,
            default_layers(role, kept),
            experiment_layers(role, tor, variant),
            has_defaults=defaults is not None,
        )
        for variant in variants
        for role in ("authority", "relay", "client")
    ]


def _torrc(
    torrc: Torrc, variants: Sequence[TorVariant], own: Mapping[str, str], port: int | None
) -> Iterator[Finding]:
    for who in ("all", "authority", "relay", "client"):
        given: dict[str, str] = {}
        for option, lines in sorted(getattr(torrc, who).items()):
            where = ("tor", "torrc", who, option)
            letters = option.casefold()
            # Tor also accepts the beginning of an option's name, so an abbreviation of a reserved
            # option is rejected, too.
            taken_for = next((one for one in RESERVED_OPTIONS if one.startswith(letters)), None)
            if who == "client" and letters == "socksport":
                other = port is not None and lines[0].split()[:1] != [str(port)]
                if len(lines) > 1 or other:
                    message = f"expected one line that begins with {port or 'the port'}"
                    yield where, f"{message}, which the traffic generators use"
            elif taken_for is not None:
                yield where, f"cannot be set here: {RESERVED_OPTIONS[taken_for]}"
            elif letters in own and who in ("all", "relay"):
                message = f"{own[letters]} overrides it in a relay's own torrc: remove one of them"
                yield where, message
            if letters in given:
                message = f"Tor ignores case, and {given[letters]} is set here too"
                yield where, message
            given[letters] = option
            yield from ((where, message) for message in _of_variants(option, variants))


def _limited_options(hosts: Iterable[HostOptions]) -> Iterator[Finding]:
    """Yield options of the experiment with values that Tor would replace by a limit."""
    found: dict[tuple[str, ...], str] = {}
    for host in hosts:
        for option, limits in LIMITS.items():
            setting = host.resolved.get(option)
            if setting is None or not setting.source.startswith(TORRC_SOURCE):
                continue
            is_concerned = limits.hosts == "all" or limits.hosts in groups_of(host.role)
            if is_concerned and not limits.accept(setting.values[-1]):
                place = (*setting.source.split("."), setting.name)
                which = "" if limits.hosts == "all" else f" of a {limits.hosts}"
                found[place] = f"Tor 0.4.9{which} accepts {limits}"
    yield from found.items()


def find_without_service(hosts: Iterable[HostOptions]) -> Iterator[Finding]:
    """Yield options of onion services on hosts without HiddenServiceDir: Tor would not start."""
    found: dict[tuple[str, ...], str] = {}
    for host in hosts:
        if "hiddenservicedir" in host.resolved:
            continue
        for option, setting in host.resolved.items():
            if option in SERVICE_OPTIONS and setting.source.startswith(TORRC_SOURCE):
                parameter = next(
                    (one for one in CONSENSUS_PARAMETERS if one.casefold() == option), ""
                )
                other = f", or set tor.consensus_params.{parameter}" if parameter else ""
                found[*setting.source.split("."), setting.name] = (
                    f"Tor does not start with it on a {host.role}, which has no HiddenServiceDir; "
                    f"remove it{other}"
                )
    yield from found.items()


def _of_variants(option: str, variants: Sequence[TorVariant]) -> Iterator[str]:
    """Yield at most one reason why an experiment with these variants must not set an option."""
    values = {
        variant.name: value
        for variant in variants
        for name, value in variant.torrc.items()
        if name.casefold() == option.casefold()
    }
    for variant in variants:
        value = values.get(variant.name)
        # The proof is a line of Tor's log that shows that the variant is active. If this line
        # contains the value of an option, the option defines the variant.
        if value and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", variant.proof or ""):
            yield f"cannot be set here: variant {variant.name} is {option} {value}"
            return
    if len(set(values.values())) > 1:
        names = ", ".join(f"{name}: {value}" for name, value in values.items())
        yield f"cannot be set here: the compared variants differ in it ({names})"


def _misspelt_parameters(parameters: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield parameters with misspelt names, and a message that suggests the right name.

    Tor ignores unknown parameters, so a misspelling would go unnoticed.
    """
    for parameter in sorted(parameters):
        meant = nearest(parameter, CONSENSUS_PARAMETERS, cutoff=0.8)
        if parameter not in CONSENSUS_PARAMETERS and meant:
            yield parameter, meant


def _check_values(parameters: Mapping[str, int]) -> Iterator[Finding]:
    for parameter, value in sorted(parameters.items()):
        where = ("tor", "consensus_params", parameter)
        accepted = CONSENSUS_PARAMETERS.get(parameter)
        if parameter == "cc_alg" and value not in CC_ALGORITHMS:
            yield where, f"expected 0 (fixed windows) or 2 (Vegas), got {value}"
        elif accepted and value not in accepted:
            message = f"Tor 0.4.9 accepts {accepted[0]} to {accepted[-1]}"
            yield where, f"{message}, and replaces other values by the nearest of these"


def find_unknown_parameters(tor: TorSettings) -> Iterator[Finding]:
    """Yield the consensus parameters that Tor 0.4.9 does not know, except for misspelt names."""
    misspelt = {parameter for parameter, _ in _misspelt_parameters(tor.consensus_params)}
    for parameter in sorted(tor.consensus_params.keys() - CONSENSUS_PARAMETERS.keys() - misspelt):
        message = "Tor 0.4.9 reads no parameter of this name; only another Tor may"
        yield ("tor", "consensus_params", parameter), message


def find_ignored(
    tor: TorSettings, hosts: Sequence[HostOptions], voted: Mapping[str, Setting]
) -> Iterator[tuple[tuple[str, ...], Setting]]:
    """Yield the keys of options and parameters that Tor ignores, and a setting that causes this.

    An option or a parameter is ignored if no host that it applies to reads it. A parameter is also
    ignored if an option overrides it on all hosts of one kind and variant.

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
    for option in changed_scheduler_options(tor.scheduler):
        places[tuple(OWN_KEYS[option.casefold()].split("."))] = option, "all"
    places |= {("tor", "consensus_params", name): (name, "all") for name in tor.consensus_params}
    for place, (name, group) in sorted(places.items()):
        concerned = [one.resolved for one in hosts if group in groups_of(one.role)]
        setting = unread_because(name, concerned, voted)
        if place[1] == "consensus_params":
            setting = _replacing(name, hosts) or setting
        if setting:
            yield place, setting


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
    """Return a setting that keeps the hosts from reading an option or a parameter.

    Return None if one of the hosts reads the option or parameter, or if there are no hosts. If the
    hosts have different such settings, return the setting of the first host.

    Args:
        name: Name of the option or parameter.
        hosts: Options of each host, from `resolve_options`.
        parameters: The network's parameters, from `parameter_settings`.
    """

    def reason(host: Mapping[str, Setting]) -> Setting | None:
        for one in conditions_of(name):
            key = one.option.casefold()
            setting = host.get(key)
            if setting is None or setting.values[-1].casefold() == "auto":
                setting = parameters.get(key)
            if setting is None or _is_unknown_algorithm(setting):
                continue
            if one.holds(setting.values[-1]):
                return replace(setting, needed=one.remedies)
        return None

    found = [reason(host) for host in hosts]
    return found[0] if all(found) and found else None


def _is_unknown_algorithm(setting: Setting) -> bool:
    """Return whether a setting is a value of cc_alg that Tor 0.4.9 does not know.

    It is not known which parameters such a congestion control reads.
    """
    return setting.name == "cc_alg" and setting.values[-1] not in map(str, CC_ALGORITHMS)


def describe_ignored(setting: Setting) -> str:
    """Return a message that says why Tor ignores an option or a parameter, and what to do."""
    why = f"Tor ignores it, because {setting.source} sets {setting}; remove it"
    name = setting.name.casefold()
    if name in FIXED_OPTIONS or not setting.needed:
        return why
    if name == "circuitpolicy":
        return f"{why}, or compare other tor.variants"
    place, key = "", OWN_KEYS.get(name, "")
    parameter = next((one for one in CONSENSUS_PARAMETERS if one.casefold() == name), "")
    if key and parameter:
        return f"{why}, and set {key}"
    if not key and parameter and setting.source in SOURCES_OF_PARAMETERS:
        key = f"tor.consensus_params.{parameter}"
    if not key:
        key, place = setting.name, " in tor.torrc"
    values = " or ".join(one.replace("<", "less than ") for one in setting.needed)
    return f"{why}, or set {key} to {values}{place}"


def parameter_settings(
    parameters: Mapping[str, int], *, has_defaults: bool = True
) -> dict[str, Setting]:
    """Return the network's consensus parameters as settings, by name in lower case.

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
