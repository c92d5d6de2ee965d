"""Differences between the options of two torrc files."""

from __future__ import annotations

SHOWN_LETTERS = 60
NOT_SET = "not set"


def changed_options(a: str, b: str) -> list[str]:
    """Return each option with different values, as ``Option: values in a / values in b``.

    The order is that of the files. An option on several lines has several values.
    """
    ours, theirs = _values(a), _values(b)
    return [
        f"{name}: {_shown(ours.get(name, []))} / {_shown(theirs.get(name, []))}"
        for name in dict.fromkeys((*ours, *theirs))
        if ours.get(name) != theirs.get(name)
    ]


def _values(torrc: str) -> dict[str, list[str]]:
    """Return option -> its values, in the order of the lines."""
    values: dict[str, list[str]] = {}
    for line in torrc.splitlines():
        name, _, value = line.partition("#")[0].strip().partition(" ")
        if name:
            values.setdefault(name, []).append(value.strip())
    return values


def _shown(values: list[str]) -> str:
    text = ", ".join(values) or NOT_SET
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}..."
