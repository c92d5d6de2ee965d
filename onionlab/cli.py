"""The console program: one verb for each module in :mod:`onionlab.commands`.

A command module has ``HELP`` (one line), ``setup_arguments(parser)`` and ``run(args) -> int``.
Where its exit status is an answer, ``STATUSES`` says which number means what.
A file ``check_variants.py`` makes the verb ``check-variants``; there is no list to keep.
"""

from __future__ import annotations

import argparse
import ast
import errno
import importlib
import importlib.util
import io
import os
import pkgutil
import shlex
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO, cast

from onionlab import __version__, commands
from onionlab.commands._renamed import replace_former_names
from onionlab.errors import UserError
from onionlab.interruption import interrupt_at_sigterm, interrupts_deferred
from onionlab.paths import working_root

EXIT_USER_ERROR = 2
EXIT_DEFECT = 70
"""EX_SOFTWARE of sysexits.h. Python's own status of a traceback, 1, is an answer of some verbs."""
EXIT_INTERRUPTED = 130

STATUSES: Mapping[int, str] = {
    0: "done",
    EXIT_USER_ERROR: "what was asked cannot be done: the message says why",
    EXIT_DEFECT: "a defect of this program: the message has a traceback and how to report it",
    EXIT_INTERRUPTED: "interrupted, by Ctrl-C or SIGTERM",
}
"""Exit status of every verb -> meaning; a verb's own meanings replace these."""

STDOUT = 1

FULL_BYTES = 2**20
"""A file system with less free space is full."""
REMEDIES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there, or ask for a larger quota",
    errno.EROFS: "make it writable, or use a checkout elsewhere",
    errno.EACCES: "change its permissions, or use a checkout of your own",
    errno.EPERM: "change its permissions, or use a checkout of your own",
}
"""What to do where the operating system refuses something: number of the error -> hint."""

# All control characters but tabs and line breaks. A log or a foreign manifest may hold any.
_ESCAPES = {
    number: f"\\x{number:02x}"
    for number in (*range(32), *range(127, 160))
    if chr(number) not in "\t\n"
}
SHOWN_LINE = 2000
SHOWN_NAME = 200
"""So many letters of a file's name are shown where the system refuses it."""


class Command(Protocol):
    """What a module of :mod:`onionlab.commands` offers."""

    HELP: str

    def setup_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work; returns the exit status."""


def command_modules() -> dict[str, str]:
    """Verb -> module name, in alphabetical order."""
    return {
        info.name.replace("_", "-"): f"{commands.__name__}.{info.name}"
        for info in sorted(pkgutil.iter_modules(commands.__path__), key=lambda info: info.name)
        if not info.name.startswith("_")
    }


def load_command(module_name: str) -> Command:
    """Import one command module."""
    with interrupts_deferred():
        return cast(Command, importlib.import_module(module_name))


def help_of(module_name: str) -> str:
    """A command module's HELP, read from its file: importing all of them takes seconds."""
    spec = importlib.util.find_spec(module_name)
    assert spec is not None
    assert spec.origin is not None
    for statement in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="HELP")], value=value):
                return str(ast.literal_eval(value))
    raise AssertionError(f"{module_name} has no HELP")


def build_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """The parser for one verb, or an overview of all for whatever is no verb.

    Only the module that is needed gets imported: its siblings (and the numerical packages behind
    them) are left alone, so that ``doctor`` starts at once and still works where another verb's
    dependency is broken.
    """
    parser = argparse.ArgumentParser(
        prog="onionlab", description="Experiment harness for Tor performance research."
    )
    parser.add_argument("--version", action="version", version=f"onionlab {__version__}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    modules = command_modules()
    if verb not in modules:
        for name, module_name in modules.items():
            subparsers.add_parser(name, help=help_of(module_name))
        return parser
    command = load_command(modules[verb])
    own = own_statuses(command)
    subparser = subparsers.add_parser(
        verb, help=command.HELP, description=command.HELP, epilog=_epilog(own)
    )
    command.setup_arguments(subparser)
    subparser.set_defaults(run=command.run, statuses=own)
    return parser


def own_statuses(command: Command) -> Mapping[int, str]:
    """What a verb answers with its exit status: number -> meaning; none where it has no answer."""
    found: Mapping[int, str] = getattr(command, "STATUSES", {})
    return found


def _epilog(statuses: Mapping[int, str]) -> str | None:
    """What stands below a verb's arguments."""
    if not statuses:
        return None
    told = {**STATUSES, **statuses}
    return "exit status: " + "; ".join(f"{number}: {told[number]}" for number in sorted(told))


def _tell_status(status: int, statuses: Mapping[int, str], arguments: Sequence[str]) -> None:
    """Under make, which ends with 2 whatever the status was: say it, and how a script gets it."""
    if status in statuses and status != 0 and "MAKELEVEL" in os.environ:
        command = shlex.join([".venv/bin/onionlab", *arguments])
        print(f"exit status {status}: {statuses[status]}", file=sys.stderr)
        print(f"make ends with 2; what ends with {status} is: {command}", file=sys.stderr)


def _require_text(arguments: Sequence[str]) -> None:
    """Raises UserError for an argument that is not UTF-8: no page and no file could name it."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UserError(f"an argument is not text in UTF-8: {argument!a}") from None


def of_system(error: OSError) -> UserError:
    """Return an error of the operating system as one of the user, with the file and a remedy."""
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if name is not None]
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    # A failed write names no file.
    shown = " -> ".join(_short(name) for name in names) or ", ".join(
        _full_folders() if full else ()
    )
    what = error.strerror or str(error) or type(error).__name__
    return UserError(f"{shown}: {what}" if shown else what, REMEDIES.get(error.errno or 0))


def _full_folders() -> list[str]:
    """Return a folder of each full file system that this program writes to."""
    root = working_root()
    below = (root / name for name in ("build", "runs", "results", "networks", "nightly"))
    full: dict[int, str] = {}
    for folder in (root, *below, Path(os.environ.get("TMPDIR") or "/tmp"), Path("/dev/shm")):
        if folder.is_dir() and shutil.disk_usage(folder).free < FULL_BYTES:
            full.setdefault(folder.stat().st_dev, str(folder))
    return list(full.values())


def _short(name: str) -> str:
    return name if len(name) <= SHOWN_NAME else f"{name[:SHOWN_NAME]}..."


def _complain(error: UserError) -> None:
    """Print what is wrong, then the hint. A line may hold a name of any length, or a part of it."""
    for text in (f"error: {error.message}", error.hint or ""):
        for line in text.splitlines():
            shown = line if len(line) <= SHOWN_LINE else f"{line[:SHOWN_LINE]}..."
            print(shown, file=sys.stderr)


class _Output(io.FileIO):
    """Output that may be closed early by its reader; the command goes on with the same status."""

    def write(self, data: Any, /) -> int:
        """Write to the output, or to nowhere once it is closed or has failed.

        Raises UserError if standard output fails for another reason, such as a full disk. Not
        OSError, which argparse ignores.
        """
        try:
            return super().write(data)
        except OSError as error:
            # By this number, since processes that are started inherit the output. What is still
            # buffered goes there too, or Python would end with status 120.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if error.errno not in (errno.EPIPE, errno.EIO) and self.fileno() == STDOUT:
                raise UserError(
                    f"standard output cannot be written: {error.strerror}",
                    REMEDIES.get(error.errno or 0),
                ) from None
            return super().write(data)


class _Text(io.TextIOWrapper):
    """Text output in which lines appear at once, also through a pipe into a log or `make`."""

    def __init__(self, output: io.BufferedWriter, encoding: str) -> None:
        super().__init__(output, encoding, errors="backslashreplace", line_buffering=True)


class _EscapedText(_Text):
    """Text output in which control characters are escaped, so that no text controls a terminal.

    Attributes:
        terminal: The same output without escaping, for Rich; None if it is not a terminal.
    """

    def __init__(self, output: io.BufferedWriter, encoding: str) -> None:
        super().__init__(output, encoding)
        self.terminal: TextIO | None = _Text(output, encoding) if self.isatty() else None

    def write(self, text: str, /) -> int:
        """Write text."""
        return super().write(text.translate(_ESCAPES))


def _open_outputs() -> None:
    """Replace both outputs of this process, so that writing to them cannot end the command.

    Control characters are escaped, and so are letters that the output's encoding lacks.
    """
    for name in ("stdout", "stderr"):
        before = getattr(sys, name)
        # The output may be closed, or replaced, as tests do.
        if before is not None and before is getattr(sys, f"__{name}__"):
            raw = _Output(before.fileno(), "w", closefd=False)
            setattr(sys, name, _EscapedText(io.BufferedWriter(raw), before.encoding))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Returns its exit status; 2 for a :class:`UserError` (printed without a traceback), as for wrong
    arguments. What the system refuses (a disk that is full, a folder that may not be written, a
    name that is too long) is a user's error too, wherever it occurs. 70 for any other exception.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_outputs()
    # Figures are written to files. Matplotlib fails where this names a backend that it lacks.
    os.environ["MPLBACKEND"] = "agg"
    try:
        # A command that is interrupted ends what it has started.
        interrupt_at_sigterm()
        _require_text(arguments)
        arguments = replace_former_names(arguments)
        args = build_parser(arguments[0] if arguments else None).parse_args(arguments)
        status = int(args.run(args))
        # Output that is still buffered may fail as well.
        print(end="", flush=True)
        _tell_status(status, args.statuses, arguments)
        return status
    except UserError as error:
        _complain(error)
        return EXIT_USER_ERROR
    except KeyboardInterrupt as interrupt:
        # Whoever was interrupted may say what is kept.
        print(": ".join(["interrupted", *map(str, interrupt.args)]), file=sys.stderr)
        return EXIT_INTERRUPTED
    except OSError as error:
        _complain(of_system(error))
        return EXIT_USER_ERROR
    except MemoryError:
        _complain(UserError("there is not enough memory for this", "free some, or ask for less"))
        return EXIT_USER_ERROR
    except RecursionError:
        _complain(UserError("a file is nested too deeply to be read"))
        return EXIT_USER_ERROR
    except Exception:
        traceback.print_exc()
        _complain(
            UserError(
                "this is a defect of onionlab, not of what it was asked for",
                "report it with the lines above, the command, and what `onionlab --version` and "
                "`onionlab doctor` print",
            )
        )
        return EXIT_DEFECT
