"""Check variants and options for anything that Tor would refuse or silently ignore."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
    PARAMETER_NAMES,
    SOCKS_FLAGS,
    conditions_of,
    overrides_of,
)
from onionlab.programs.tor.variants import TorVariant
from onionlab.yamlfile.units import nearest, show

CC_ALGORITHMS = ("0", "2")  # fixed windows, Vegas; Tor 0.4.9 replaces other values by its default

FIXED_OPTIONS = INDISPENSABLE | {"clientonly", "orport"}
"""Options, in lower case, whose values runs need. Messages do not propose other values."""

Finding = tuple[tuple[str, ...], str]
"""Path of keys below the settings, and the problem there."""


@dataclass(frozen=True)
class KnownNames:
    """Names that other files define.

    If the names are not known, an attribute is None, and checks that need these names are omitted.
    """

    variants: Mapping[str, TorVariant] | None = None
    capacities: frozenset[str] | None = None
    geographies: frozenset[str] | None = None
    peers: frozenset[str] | None = None
    is_file: Callable[[str], bool] | None = field(default=None, compare=False)
    """A function that returns whether a path, relative to the checkout, is a file."""
    tor_defaults: Mapping[str, str] = field(default_factory=dict)
    """Name of a file in configs/tor, without its suffix -> the text of the file."""
    any_tor: bool = False
    """True if commits of Tor will replace the experiment's variants."""


def describe_unknown(what: str, name: str, known: Collection[str]) -> str:
    """Return a message about an unknown name, which lists the known names."""
    names = ", ".join(sorted(known))
    return f"unknown {what} {show(name)}; known are {names}{nearest(name, sorted(known))}"


def find_tor_errors(
    tor: TorSettings, known: KnownNames, own: Mapping[str, str] | None
) -> Iterator[Finding]:
    """Yield errors in the variants, and parameters and options that Tor would reject or ignore.

    own: option that relays' own torrc files contain, in lower case -> the key of the experiment
    that puts it there; None for imported networks, which have files of their own.
    """
    yield from _check_variants(tor, known.variants)
    variants = _variants(tor, known)
    hosts = _hosts(tor, variants, None if own is None else known.tor_defaults)
    yield from _check_options(tor, variants, hosts, own or {}, has_defaults=own is not None)
    if not _may_change(known, variants):
        yield from _find_unknown(tor, hosts)


def find_tor_warnings(
    tor: TorSettings, known: KnownNames, defaults: Mapping[str, str] | None
) -> Iterator[Finding]:
    """Yield names and values that only another Tor than 0.4.9 accepts.

    defaults: name of a file of configs/tor -> its text; None for imported networks.
    """
    known_names = {*CONSENSUS_PARAMETERS, *_misspelt_parameters(tor.consensus_params)}
    for parameter in sorted(tor.consensus_params.keys() - known_names):
        message = "Tor 0.4.9 reads no parameter of this name; only another Tor may"
        yield ("tor", "consensus_params", parameter), message
    variants = _variants(tor, known)
    if _may_change(known, variants):
        for where, said in _find_unknown(tor, _hosts(tor, variants, defaults)):
            yield where, f"{said}; only a Tor that knows it accepts it"


def _may_change(known: KnownNames, variants: Iterable[TorVariant]) -> bool:
    """Return whether a variant is built from a commit or a tarball, which can have changes."""
    return known.any_tor or any(variant.has_own_code for variant in variants)


def _check_variants(tor: TorSettings, known: Mapping[str, TorVariant] | None) -> Iterator[Finding]:
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


def _check_options(
    tor: TorSettings,
    variants: Sequence[TorVariant],
    hosts: Sequence[HostOptions],
    own: Mapping[str, str],
    has_defaults: bool,
) -> Iterator[Finding]:
    voted = parameter_settings(tor.consensus_params, has_defaults=has_defaults)
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
    yield from _torrc(tor.torrc, variants, own, port=SOCKS_PORT if has_defaults else None)
    if has_defaults:
        yield from find_without_service(hosts)
    misspelt = _misspelt_parameters(tor.consensus_params)
    for place, ignored in find_ignored(tor, hosts, voted):
        if place[1] != "consensus_params" or place[2] not in misspelt:
            yield place, describe_ignored(ignored)


def _find_unknown(tor: TorSettings, hosts: Iterable[HostOptions]) -> Iterator[Finding]:
    """Yield names and values that Tor 0.4.9 does not accept, but that a changed Tor may accept."""
    misspelt = _misspelt_parameters(tor.consensus_params)
    for parameter, value in sorted(tor.consensus_params.items()):
        where = ("tor", "consensus_params", parameter)
        accepted = CONSENSUS_PARAMETERS.get(parameter)
        if parameter in misspelt:
            yield where, f"Tor 0.4.9 reads no parameter of this name{misspelt[parameter]}"
        elif parameter == "cc_alg" and str(value) not in CC_ALGORITHMS:
            yield where, f"expected 0 (fixed windows) or 2 (Vegas), got {value}"
        elif accepted and value not in accepted:
            message = f"Tor 0.4.9 accepts {accepted[0]} to {accepted[-1]}"
            yield where, f"{message}, and replaces other values by the nearest of these"
    for option, lines in sorted(tor.torrc.client.items()):
        if option.casefold() == "socksport":
            for flag in lines[0].split()[1:]:
                is_known = flag.casefold().removeprefix("no") in SOCKS_FLAGS
                if not is_known and not flag.casefold().startswith("sessiongroup="):
                    message = f"Tor has no flag {flag} of SocksPort"
                    yield ("tor", "torrc", "client", option), message
    yield from _limited_options(hosts)


def _variants(tor: TorSettings, known: KnownNames) -> list[TorVariant]:
    variants = known.variants or {}
    return [variants[name] for name in tor.variants if name in variants]


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
    for who, options in torrc:
        given: dict[str, str] = {}
        for option, lines in sorted(options.items()):
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
            if because := _defines_variants(option, variants):
                yield where, f"cannot be set here: {because}"


def _limited_options(hosts: Iterable[HostOptions]) -> Iterator[Finding]:
    """Yield options of the experiment with values that Tor would replace by a limit."""
    for host in hosts:
        for option, limits in LIMITS.items():
            setting = host.resolved.get(option)
            if setting is None or not setting.source.startswith(TORRC_SOURCE):
                continue
            is_concerned = limits.hosts == "all" or limits.hosts in groups_of(host.role)
            if is_concerned and not limits.accept(setting.values[-1]):
                which = "" if limits.hosts == "all" else f" of a {limits.hosts}"
                place = (*setting.source.split("."), setting.name)
                yield place, f"Tor 0.4.9{which} accepts {limits}"


def find_without_service(hosts: Iterable[HostOptions]) -> Iterator[Finding]:
    """Yield options of onion services on hosts without HiddenServiceDir: Tor would not start."""
    found: dict[tuple[str, ...], str] = {}
    for host in hosts:
        if "hiddenservicedir" in host.resolved:
            continue
        for option, setting in host.resolved.items():
            if option in SERVICE_OPTIONS and setting.source.startswith(TORRC_SOURCE):
                parameter = PARAMETER_NAMES.get(option)
                other = f", or set tor.consensus_params.{parameter}" if parameter else ""
                found[*setting.source.split("."), setting.name] = (
                    f"Tor does not start with it on a {host.role}, which has no HiddenServiceDir; "
                    f"remove it{other}"
                )
    yield from found.items()


def _defines_variants(option: str, variants: Sequence[TorVariant]) -> str | None:
    """Return why an experiment with these variants must not set an option; None if it can."""
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
            return f"variant {variant.name} is {option} {value}"
    if len(set(values.values())) < 2:
        return None
    names = ", ".join(f"{name}: {value}" for name, value in values.items())
    return f"the compared variants differ in it ({names})"


def _misspelt_parameters(parameters: Iterable[str]) -> dict[str, str]:
    """Return the parameters with misspelt names -> a message that suggests the right name.

    Tor ignores unknown parameters, so a misspelling would go unnoticed.
    """
    unknown = [one for one in parameters if one not in CONSENSUS_PARAMETERS]
    return {
        one: meant for one in unknown if (meant := nearest(one, CONSENSUS_PARAMETERS, cutoff=0.8))
    }


def find_ignored(
    tor: TorSettings, hosts: Sequence[HostOptions], voted: Mapping[str, Setting]
) -> Iterator[tuple[tuple[str, ...], Setting]]:
    """Yield the keys of options and parameters that Tor ignores, and a setting that causes this.

    An option or a parameter is ignored if no host that it applies to reads it. A parameter is also
    ignored if an option overrides it on all hosts of one kind and variant. voted: the network's
    parameters, from `parameter_settings`.
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
    hosts have different such settings, return the setting of the first host. hosts: options of each
    host, from `resolve_options`. parameters: the network's, from `parameter_settings`.
    """

    def reason(host: Mapping[str, Setting]) -> Setting | None:
        for one in conditions_of(name):
            key = one.option.casefold()
            setting = host.get(key)
            if setting is None or setting.values[-1].casefold() == "auto":
                setting = parameters.get(key)
            if setting is None or not one.holds(value := setting.values[-1]):
                continue
            # It is not known which parameters a congestion control reads that Tor 0.4.9 lacks.
            if setting.name != "cc_alg" or value in CC_ALGORITHMS:
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
    place, key = "", OWN_KEYS.get(name, "")
    parameter = PARAMETER_NAMES.get(name)
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

    parameters: those that authorities vote for. has_defaults: whether to include Tor's own. They
    are excluded if files of an imported network, which are not known yet, may override them.
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
