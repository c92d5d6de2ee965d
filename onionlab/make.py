"""Run a command with make variables as its arguments: ``python -m onionlab.make run``.

The Makefile exports its variables, so their values never pass through the syntax of make or of a
shell. An option reads the variable of its name: ``--max-jobs`` reads MAX_JOBS.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterator, Mapping

from onionlab import cli
from onionlab.commands._renamed import RENAMED, replace_former_variables, variable_name
from onionlab.errors import UserError

COMMAND_LINE = "MAKE_VARIABLES"
"""Environment variable with the names of all variables that make's command line sets."""

POSITIONALS = {
    "name": "NAME",
    "a": "A",
    "b": "B",
    "files": "FROM",
    "file": "FROM",
    "directories": "FROM",
}
"""Positional argument -> its variable. Other positional arguments cannot be given through make."""

EXAMPLES = {
    "bisect": "GOOD=tor-0.4.9.1-alpha BAD=main TOR_GIT=/path/to/tor ENDPOINT=ttfb_p50_s",
    "compare": "A=quick:ewma B=quick:rr",
    "compare-tor": "A=main B=my-branch TOR_GIT=/path/to/tor",
    "generate-network": "NAME=name STAGED_DIR=dir TMODEL_DIR=dir",
    "import-consensus": "FROM=consensus NAME=name",
    "import-network": "FROM=tornet NAME=name",
    "unpack": "FROM=runs.tar.xz",
}
WITH_OPTIONAL_NAME = ("bisect", "compare-tor", "doctor")

PROGRAM_VARIABLES = {"PYTHON", "TOR_SOURCE", "LINUX_SOURCE", "LIBTORRENT_SOURCE", "VARIANTS_FILE"}
PROGRAM_VARIABLES |= {"SHADOW", "TGEN", "ONIONTRACE", "TORNETTOOLS"}
"""Variables that the code or setup.sh reads directly from the environment."""

CLUSTER_VARIABLES = {"PARTITION", "ACCOUNT", "QOS", "MAX_JOBS", "PROFILE"}
"""Options that the environment may set only if EXECUTOR is set, because other programs also use
variables with such names."""

ENVIRONMENT_VARIABLES = {"NAME", "SCALE", "NETWORKS", "SEEDS", "REPEATS", "MAX_NETWORKS"}
ENVIRONMENT_VARIABLES |= {"VARIANTS", "ENGINE", "SHADOW", "TGEN", "JOBS", "EXECUTOR"}
"""Options that the environment may always set. Except for CLUSTER_VARIABLES, all other options have
to be on make's command line."""


def command_line(verb: str, environment: Mapping[str, str]) -> list[str]:
    """Return the program's arguments that correspond to the make variables in ``environment``.

    Raises:
        UserError: A required variable is missing, or make's command line sets an unknown variable.
    """
    given = set(environment.get(COMMAND_LINE, "").split())
    # MAKELEVEL is more than 1 if another make called this one. The command line of that make may
    # set variables for other programs, so unknown variables are ignored in this case.
    if environment.get("MAKELEVEL", "1") == "1":
        _require_known(given, verb)
    usable = given | ENVIRONMENT_VARIABLES
    if environment.get("EXECUTOR"):
        usable |= CLUSTER_VARIABLES
    values = {name: environment[name] for name in usable if environment.get(name)}
    values = replace_former_variables(verb, values)
    options, positionals = [], []
    for variable, option, action in _arguments(verb):
        value = values.get(variable)
        if not value:
            if action.required or (variable == "NAME" and verb not in WITH_OPTIONAL_NAME):
                example = EXAMPLES.get(verb, "NAME=quick")
                hint = f"for example: make {verb} {example}; `make list` shows all names"
                raise UserError(f"{variable} is missing", hint)
        elif not option:
            positionals.append(value)
        else:
            options.append(option if action.nargs == 0 else f"{option}={value}")
    return [verb, *options, *(["--", *positionals] if positionals else [])]


def _arguments(verb: str) -> Iterator[tuple[str, str, argparse.Action]]:
    """Yield the make variable, the option and the action of each argument of a command.

    The option of a positional argument is "".
    """
    parser = argparse.ArgumentParser(add_help=False)
    cli.load_command(cli.command_modules()[verb]).setup_arguments(parser)
    for action in parser._actions:
        for option in action.option_strings:
            yield variable_name(option), option, action
        if not action.option_strings and action.dest in POSITIONALS:
            yield POSITIONALS[action.dest], "", action


def command_variables(verb: str) -> set[str]:
    """Return all make variables of a command, including their former names."""
    former = {variable_name(old).partition("=")[0] for old in RENAMED.get(verb, {})}
    return former.union(variable for variable, _, _ in _arguments(verb))


def _require_known(given: set[str], verb: str) -> None:
    """Raise UserError for a variable that no command reads, which is most likely misspelt."""
    known = command_variables(verb) | PROGRAM_VARIABLES | ENVIRONMENT_VARIABLES | CLUSTER_VARIABLES
    unknown = {name for name in given - known if not name.startswith("ONIONLAB_")}
    if not unknown:
        return
    # A command line can have several targets, so another command may read the variable. This is
    # checked only if necessary, because importing all commands takes seconds.
    known.update(*map(command_variables, cli.command_modules()))
    for name in sorted(unknown - known):
        similar = difflib.get_close_matches(name, sorted(known), 1)
        raise UserError(
            f"unknown variable {name}" + (f"; did you mean {similar[0]}?" if similar else ""),
            f"`make help` lists all. To set it for the programs: {name}=... make {verb}",
        )


def main() -> int:
    """Run the command that the only argument names; return its exit status."""
    try:
        arguments = command_line(sys.argv[1], os.environ)
    except UserError as error:
        print(f"error: {error.message}\n{error.hint}", file=sys.stderr)
        return cli.EXIT_USER_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return cli.EXIT_INTERRUPTED
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
