"""Former names of options and make variables. Versions before 0.4 accept them with a warning."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from onionlab.errors import UserError

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
"""Command -> former name of an option -> its present name. A name may include a value. An empty
present name means that the former option is dropped: it requests what is now the default."""


def variable_name(option: str) -> str:
    """Return an option's make variable: MAX_JOBS for ``--max-jobs``, LIST=a for ``--list=a``."""
    name, equals, value = option.removeprefix("--").partition("=")
    return name.upper().replace("-", "_") + equals + value


def replace_former_names(arguments: Sequence[str]) -> list[str]:
    """Replace former names in a command line, and print a warning for each of them."""
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
    """Return a copy of ``values`` that also has the value of each former name under its new name.

    values: make variable -> its value. A warning is printed for each former name. Raises UserError
    for a value that a former name does not have in `RENAMED`.
    """
    present = dict(values)
    renamed = RENAMED.get(verb, {})
    with_value = [variable_name(old) for old in renamed if "=" in old]
    for old, new in renamed.items():
        former, _, expected = variable_name(old).partition("=")
        if expected and former in values and f"{former}={values[former]}" not in with_value:
            hint = f"remove it, or give {' or '.join(with_value)}"
            raise UserError(f"{former}={values[former]} is not known", hint)
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
