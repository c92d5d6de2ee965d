"""A small checkout to load experiments from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.experiment import Experiment, load

REPOSITORY = Path(__file__).resolve().parents[2]

Write = Callable[[str, str], None]
LoadText = Callable[[str], Experiment]
Refused = Callable[[str], list[str]]

VALID = """\
title: A small experiment
description: Three relays and two clients.
seeds: 2
network:
  relays:
    guard: {count: 2}
    exit: {count: 1}
    middle:
      count: 3
  servers:
    count: 2
    bandwidth: "1 Gbit"
  geography: internet-2019
traffic:
  web:
    count: 4
    request: "320 KiB"
    pause: {uniform: ["1 s", "3 s"]}
    timeout: "60 s"
    stallout: none
    start: {after: "5 s", spread: "5 s"}
tor:
  variants: [rr, ewma]
  baseline: ewma
  consensus_params:
    cc_alg: 0
time:
  bootstrap: "5 min"
  warm_up: "30 s"
  measured: "120 s"
  drain: "60 s"
"""

LEVELS_AND_FIGURE = """\
levels:
  few: {label: few, overrides: {network: {relays: {middle: {count: 1}}}}}
  many: {label: many}
figures:
  - {id: a, kind: ttfb-320kib, level: few, title: "A", paper: 3}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with the real variants, capacities and regions, and no experiment."""
    (tmp_path / "experiments" / "base").mkdir(parents=True)
    for name in ("configs", "tor-patches"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    return tmp_path


@pytest.fixture
def write(checkout: Path) -> Write:
    """Return a function that writes content to experiments/NAME.yaml."""

    def write_file(name: str, text: str) -> None:
        (checkout / "experiments" / f"{name}.yaml").write_text(text, encoding="utf-8")

    return write_file


@pytest.fixture
def load_text(checkout: Path, write: Write) -> LoadText:
    """Return a function that writes content to experiments/foo.yaml and loads this file."""

    def load_it(text: str) -> Experiment:
        write("foo", text)
        return load("foo", root=checkout)

    return load_it


@pytest.fixture
def refused(load_text: LoadText) -> Refused:
    """Return a function that writes invalid content to experiments/foo.yaml and returns the errors.

    Each error is a line. The heading is removed.
    """

    def errors(text: str) -> list[str]:
        with pytest.raises(UserError) as caught:
            load_text(text)
        lines = caught.value.message.splitlines()
        if len(lines) > 1:
            assert lines[0] == f"experiments/foo.yaml: {len(lines) - 1} things are wrong"
            lines = [line.removeprefix("  ") for line in lines[1:]]
        return lines

    return errors
