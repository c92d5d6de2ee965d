"""An experiment on imported networks, for its user to change."""

from __future__ import annotations

from pathlib import Path

from analysis.formats.durable import write_whole
from onionlab.experiment.finding import EXPERIMENTS, NAME, OF_OTHERS, SUFFIX, experiment_names
from onionlab.experiment.tornettools import TornetTime
from onionlab.experiment.tornettools_networks import facts_of
from onionlab.tornet.model import Tornet
from onionlab.yamlfile.units import format_time

CONVERGED_SHARE = 1 / 3
"""Of the simulated time, before anything counts: tornettools' 1200 s of 3600 s."""


def write_first_experiment(root: Path, name: str, tornet: Tornet, seeds: int) -> str:
    """Write `experiments/NAME.yaml` with all that can be set, unless there is such an experiment.

    Args:
        root: The working root.
        name: Of the networks, which the experiment is named like.
        tornet: Any of them: they are of one kind.
        seeds: How many there are.

    Returns:
        What was done, in words. The settings say the defaults, but for the measured span where the
        networks are too short for them.
    """
    path = root / EXPERIMENTS / f"{name}{SUFFIX}"
    if NAME.fullmatch(name) is None or OF_OTHERS.fullmatch(name) is not None:
        return f"no {EXPERIMENTS}/{name}{SUFFIX}: no experiment can have this name"
    if name in experiment_names(root):
        return f"{root / f'{EXPERIMENTS}/{name}{SUFFIX}'} was there: left as it is"
    schema = path.with_name("tornettools.schema.json")
    write_whole(path, _text(name, tornet, seeds, schema.name if schema.exists() else None))
    return f"{path} written: make experiment NAME={name}"


def _text(name: str, tornet: Tornet, seeds: int, schema: str | None) -> str:
    facts = facts_of(tornet)
    drain_s = TornetTime().drain_s
    if facts.stop_s - drain_s <= facts.bootstrap_end_s:
        drain_s = 0.0
    measured_from_s = max(facts.bootstrap_end_s, round(CONVERGED_SHARE * facts.stop_s))
    if measured_from_s >= facts.stop_s - drain_s:
        measured_from_s = facts.bootstrap_end_s
    first = f"# yaml-language-server: $schema={schema}\n" if schema else ""
    return f"""{first}\
# Written by `make import-network`, for you to change; all keys, those not named here too:
# docs/reference/tornettools-experiments.md
kind: tornettools
title: Circuit policies on the networks {name}
description: >-
  What users of networks that tornettools generated get under each circuit policy.

network:
  name: {name}
  oniontrace: as-imported  # none: without circuit build times and relay goodput

tor:
  variants: [ewma, rr, swrr-linear]  # `make list` shows all
  baseline: ewma
  deployment: all  # or who runs the variant: relays, exits, clients, {{relays: 50 %}}
  trace: none  # relays that write down when each cell passes

traffic:
  markov_clients: 100 %  # the share of users that is simulated

time:
  measured_from: {format_time(measured_from_s)}
  stop: none  # the networks' own {format_time(facts.stop_s)}; earlier costs less (make estimate)
  drain: {format_time(drain_s)}

seeds: {seeds}
"""
