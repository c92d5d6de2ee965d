"""NETWORKS and SEEDS, which are two names of one thing: the networks that variants run on."""

from __future__ import annotations

import re
from dataclasses import replace

from onionlab.errors import UserError
from onionlab.experiment.values import MAX_REPEATS, parse_networks
from onionlab.yamlfile.tree import Node, Problem
from onionlab.yamlfile.units import show

TWO_NAMES = "is another name of `networks`, which is here too; remove one of them"


def with_networks(tree: Node) -> tuple[Node, list[Problem]]:
    """Return a file's tree with its key `seeds` named `networks`, and what is wrong with the two.

    What a file extends may use the other name, so this comes before files are merged.
    """
    if not isinstance(tree.value, dict) or "seeds" not in tree.value:
        return tree, []
    if "networks" in tree.value:
        return tree.without("seeds"), [tree.value["seeds"].problem(TWO_NAMES)]
    named = {"networks" if key == "seeds" else key: node for key, node in tree.value.items()}
    return replace(tree, value=named), []


def parse_seeds(text: str) -> int | list[int]:
    """Return the NETWORKS of a command line: a number of them ("3") or a list ("1,2,7").

    Raises:
        UserError: neither of them.
    """
    if re.fullmatch(r"[0-9]{1,10}(, ?[0-9]{1,10})*,?", text.strip(), re.ASCII) is None:
        raise UserError(
            f"NETWORKS: expected a number of networks or a list such as 1,2,7, got {show(text)}",
            "`make experiment` takes NETWORKS=auto too" if text == "auto" else None,
        )
    numbers = [int(part) for part in text.split(",") if part.strip()]
    seeds = numbers if "," in text else numbers[0]
    checked_seeds(seeds)
    return seeds


def checked_seeds(seeds: object) -> tuple[int, ...]:
    """Return all networks that a number of them, or a list, stands for. Raises UserError."""
    try:
        return parse_networks(seeds)
    except ValueError as error:
        raise UserError(f"NETWORKS: {error}") from None


def checked_repeats(repeats: int) -> int:
    """Return a number of repeats. Raises UserError where it is out of range."""
    if not 1 <= repeats <= MAX_REPEATS:
        expected = f"a whole number from 1 to {MAX_REPEATS}"
        raise UserError(f"REPEATS: expected {expected}, got {show(repeats)}")
    return repeats


def scope_problem(scope: str, seeds: tuple[int, ...], repeats: int) -> str | None:
    """Return why verdicts cannot have a scope with these runs; None if they can."""
    if scope == "networks" or (len(seeds) == 1 and repeats > 1):
        return None
    return (
        f"one-network needs exactly one network and at least two repeats, and there are "
        f"{len(seeds)} and {repeats}"
    )
