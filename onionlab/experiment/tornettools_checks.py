"""What makes the settings of a `tornettools` experiment impossible though each value is right."""

from __future__ import annotations

from collections.abc import Iterator

from onionlab.experiment.checks import Finding, KnownNames, check_tor_options, variants_of_tor
from onionlab.experiment.tornettools import TornetSettings
from onionlab.yamlfile.units import format_time


def impossible(settings: TornetSettings, known: KnownNames) -> Iterator[Finding]:
    """Everything for which a run of these settings could not give a result."""
    yield from variants_of_tor(settings.tor.variants, settings.tor.baseline, known)
    yield from check_tor_options(settings.tor, known)


def impossible_in_networks(settings: TornetSettings) -> Iterator[Finding]:
    """The same, of what takes the networks to tell."""
    facts, time = settings.facts, settings.time
    if time.given_stop_s is not None and time.given_stop_s > facts.stop_s:
        message = (
            f"the networks were made for {format_time(facts.stop_s)}: their keys may not be valid "
            "for longer"
        )
        yield Finding(("time", "stop"), message)
    if time.measured_start_s >= time.measured_end_s:
        message = (
            f"nothing would be measured: the simulation ends after {format_time(time.stop_s)}, and "
            f"{format_time(time.drain_s)} before that streams no longer count (drain)"
        )
        yield Finding(("time", "measured_from"), message)
    if time.measured_start_s < facts.bootstrap_end_s:
        message = (
            f"until {format_time(facts.bootstrap_end_s)} the networks bootstrap, and no link "
            "limits anything"
        )
        yield Finding(("time", "measured_from"), message)
    if all(one["load"] for one in settings.classes.values()):
        yield Finding(("network", "name"), "none of its clients fetches files: nothing to measure")
