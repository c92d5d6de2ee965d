"""The console program, with a command for each public module in :mod:`onionlab.commands`.

A command module has ``HELP`` (one line), ``setup_arguments(parser)`` and ``run(args) -> int``. A
command whose exit status is an answer also has ``STATUSES``: exit status -> meaning. The module
``check_variants.py`` is the command ``check-variants``.
"""

from __future__ import annotations

import argparse
import ast
import errno
import importlib
import io
import logging
import os
import pkgutil
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from onionlab import __version__, commands
from onionlab.commands._renamed import replace_former_names
from onionlab.errors import UserError
from onionlab.interruption import interrupt_at_sigterm, interrupts_deferred
from onionlab.runs.places import REMEDIES, user_error_from_os_error

EXIT_USER_ERROR = 2
EXIT_DEFECT = 70
"""EX_SOFTWARE of sysexits.h. Python's own status after an exception, 1, is not used, because 1 is
an answer of some commands: ``compare`` returns 1 if it finds a regression."""
EXIT_INTERRUPTED = 130

STATUSES: Mapping[int, str] = {
    0: "done",
    EXIT_USER_ERROR: "the command cannot be executed: the message gives the reason",
    EXIT_DEFECT: "a defect of this program: the message has a traceback and how to report it",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C or SIGTERM",
}
"""Exit status -> meaning, for every command. A command's own STATUSES override these."""

STDOUT = 1

# All control characters except tabs and line breaks are escaped in output. Messages quote logs and
# other users' manifests, whose control characters could change the terminal.
_ESCAPES = {n: f"\\x{n:02x}" for n in {*range(32), *range(127, 160)} - {*b"\t\n"}}
MAX_LINE_LENGTH = 2000
"""Number of characters after which a line of a message is cut."""


class _Printer(logging.Handler):
    """Prints the program's log on standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage())


_PRINTER = _Printer()


def command_modules() -> dict[str, str]:
    """Return the name of each command's module, by command, in alphabetical order."""
    names = sorted(info.name for info in pkgutil.iter_modules(commands.__path__))
    return {
        name.replace("_", "-"): f"{commands.__name__}.{name}"
        for name in names
        if not name.startswith("_")
    }


def load_command(module_name: str) -> ModuleType:
    """Import one command module."""
    with interrupts_deferred():
        return importlib.import_module(module_name)


def help_of(module_name: str) -> str:
    """Return the HELP of a command, read from its file.

    The module is not imported: the list of all commands needs every HELP, and importing all modules
    would take seconds.
    """
    file = Path(commands.__path__[0], f"{module_name.rpartition('.')[2]}.py")
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="HELP")], value=value):
                return str(ast.literal_eval(value))
    raise AssertionError(f"{module_name} has no HELP")


def build_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command ``verb``.

    If there is no such command, the parser lists all commands. Otherwise, only the module of the
    command is imported. Therefore ``doctor`` starts fast, and works even if a dependency of another
    command is broken.
    """
    parser = argparse.ArgumentParser(
        prog="onionlab", description="Experiment harness for Tor performance research."
    )
    parser.add_argument("--version", action="version", version=f"onionlab {__version__}")
    subparsers = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    modules = command_modules()
    if verb not in modules:
        for name, module_name in modules.items():
            subparsers.add_parser(name, help=help_of(module_name))
        return parser
    command = load_command(modules[verb])
    own = own_statuses(command)
    meanings = {**STATUSES, **own}
    listed = "; ".join(f"{number}: {meanings[number]}" for number in sorted(meanings))
    subparser = subparsers.add_parser(
        verb,
        help=command.HELP,
        description=command.HELP,
        epilog=f"exit status: {listed}" if own else None,
    )
    command.setup_arguments(subparser)
    subparser.set_defaults(run=command.run, statuses=own)
    return parser


def own_statuses(command: ModuleType) -> Mapping[int, str]:
    """Return the meanings of a command's own exit statuses; empty if it has none."""
    return getattr(command, "STATUSES", {})


def _print_status(status: int, statuses: Mapping[int, str], arguments: Sequence[str]) -> None:
    """Print what an exit status means, if ``statuses`` explains it and make called this program.

    Nothing is printed for status 0. Make replaces every other status by 2. Therefore also print a
    command line that runs the same command without make, and so ends with ``status`` itself.
    """
    if status in statuses and status != 0 and "MAKELEVEL" in os.environ:
        command = shlex.join([".venv/bin/onionlab", *arguments])
        print(f"exit status {status}: {statuses[status]}", file=sys.stderr)
        print(f"make ends with 2; to end with {status}: {command}", file=sys.stderr)


def _print_error(error: UserError) -> int:
    """Print an error and its hint, with long lines cut. Return the status of user errors."""
    for text in (f"error: {error.message}", error.hint or ""):
        for line in text.splitlines():
            cut = line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}..."
            print(cut, file=sys.stderr)
    return EXIT_USER_ERROR


class _Output(io.FileIO):
    """Standard output or standard error, which a reader such as ``| head`` may close early.

    If this happens, the command continues as before. Its exit status does not change.
    """

    def write(self, data: Any, /) -> int:
        """Write to the output, or to /dev/null after the output was closed or has failed.

        Raises UserError if standard output fails for another reason than being closed, such as a
        full disk. It does not raise OSError, because argparse ignores an OSError.
        """
        try:
            return super().write(data)
        except OSError as error:
            # Replace the descriptor, because child processes inherit it, and because Python writes
            # buffered output to it at exit. If Python's write fails, the exit status is 120.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if error.errno not in (errno.EPIPE, errno.EIO) and self.fileno() == STDOUT:
                raise UserError(
                    f"standard output cannot be written: {error.strerror}",
                    REMEDIES.get(error.errno or 0),
                ) from None
            return super().write(data)


class _EscapedText(io.TextIOWrapper):
    """Text output with escaped control characters, so that no text controls a terminal.

    It is flushed after each line, even if it is a pipe.

    Attributes:
        terminal: The same output without escapes, for Rich; None if the output is not a terminal.
    """

    def __init__(self, output: io.BufferedWriter, encoding: str) -> None:
        how: dict[str, Any] = {"errors": "backslashreplace", "line_buffering": True}
        super().__init__(output, encoding, **how)
        is_terminal = self.isatty()
        self.terminal = io.TextIOWrapper(output, encoding, **how) if is_terminal else None

    def write(self, text: str, /) -> int:
        return super().write(text.translate(_ESCAPES))


def _open_outputs() -> None:
    """Replace standard output and standard error by outputs that their readers may close early.

    The new outputs escape control characters, and characters that their encoding lacks.
    """
    for name in ("stdout", "stderr"):
        before = getattr(sys, name)
        # Do not replace an output that is closed, or that a test has replaced.
        if before is not None and before is getattr(sys, f"__{name}__"):
            raw = _Output(before.fileno(), "w", closefd=False)
            setattr(sys, name, _EscapedText(io.BufferedWriter(raw), before.encoding))


def main(argv: Sequence[str] | None = None) -> int:
    """Execute one command, and return its exit status.

    The status is 2 for a :class:`UserError`, which is printed without a traceback, 130 for an
    interrupt, and 70 for an unexpected exception. Errors of the operating system, such as a full
    disk, and a lack of memory count as user errors. For wrong arguments, argparse ends the process
    with status 2.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_outputs()
    log = logging.getLogger("onionlab")
    log.setLevel(logging.INFO)
    log.addHandler(_PRINTER)
    # The backend agg writes figures to files. Override the user's variable, because Matplotlib
    # fails if it names a missing backend.
    os.environ["MPLBACKEND"] = "agg"
    try:
        # Treat SIGTERM like Ctrl-C: an interrupted command ends the processes that it has started.
        interrupt_at_sigterm()
        for argument in arguments:
            if argument.encode(errors="ignore") != argument.encode(errors="surrogateescape"):
                raise UserError(f"an argument is not text in UTF-8: {argument!a}")
        arguments = replace_former_names(arguments)
        args = build_parser(arguments[0] if arguments else None).parse_args(arguments)
        status = int(args.run(args))
        # Flush here, so that an error of writing the buffered output is handled below.
        print(end="", flush=True)
        _print_status(status, args.statuses, arguments)
        return status
    except UserError as error:
        return _print_error(error)
    except KeyboardInterrupt as interrupt:
        # An argument of the exception is a message about finished work that is not lost.
        print(": ".join(["interrupted", *map(str, interrupt.args)]), file=sys.stderr)
        return EXIT_INTERRUPTED
    except OSError as error:
        return _print_error(user_error_from_os_error(error))
    except MemoryError:
        return _print_error(UserError("out of memory", "Free memory, or reduce SCALE or JOBS."))
    except RecursionError:
        return _print_error(UserError("a file is nested too deeply to be read"))
    except Exception:
        traceback.print_exc()
        hint = (
            "report it with the lines above, the command, and what `onionlab --version` and "
            "`onionlab doctor` print"
        )
        _print_error(UserError("this is a defect of onionlab", hint))
        return EXIT_DEFECT
