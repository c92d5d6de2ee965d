"""Former names of options and make variables. They are accepted with a warning until 0.4."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

RENAMED: Mapping[str, Mapping[str, str]] = {
    "celltrace-live": {"--seconds": "--duration"},
    "compare": {"--about": "--allow-diff", "--paired=no": "--unpaired", "--paired=yes": ""},
    "estimate": {"--max-seeds": "--max-networks"},
    "experiment": {"--max-seeds": "--max-networks"},
    "figures": {"--from": "--packs", "--beside": "--compare-with"},
    "generate-network": {"--staged": "--staged-dir", "--tmodel": "--tmodel-dir"},
    "import": {"--from": "--start", "--to": "--end"},
    "nightly": {"--accept": "--update-baseline", "--list": "--config", "--state": "--state-dir"},
}
"""Command -> former name of an option -> its present name. A name may include a value. If the
present name is empty, the former option only requests the default, and is left out."""


def variable_name(option: str) -> str:
    """Return the make variable that an option reads: MAX_JOBS for ``--max-jobs``."""
    name, equals, value = option.removeprefix("--").partition("=")
    return name.upper().replace("-", "_") + equals + value


def replace_former_names(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the present names, and print a warning for each former one."""
    renamed = RENAMED.get(arguments[0], {}) if arguments else {}
    with_value = {old.partition("=")[0] for old in renamed if "=" in old}
    present: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return [*present, argument, *rest]
        if argument in with_value:
            argument = f"{argument}={next(rest, '')}"
        name, equals, value = argument.partition("=")
        old, suffix = (argument, "") if argument in renamed else (name, equals + value)
        if old not in renamed:
            present.append(argument)
            continue
        new = renamed[old]
        _warn(old, new)
        present += [new + suffix] if new else []
    return present


def replace_former_variables(verb: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return make variables with the present names, and print a warning for each former one."""
    present = dict(values)
    for old, new in RENAMED.get(verb, {}).items():
        former, _, expected = variable_name(old).partition("=")
        if former in values and (not expected or values[former] == expected):
            name, _, value = variable_name(new).partition("=")
            present[name] = value or values[former]
            _warn(old, new)
    return present


def _warn(old: str, new: str) -> None:
    now = f"{new} ({variable_name(new)})" if new else "the default"
    print(
        f"warning: {old} ({variable_name(old)}) is now {now}; the former name is accepted until "
        "version 0.4",
        file=sys.stderr,
    )
