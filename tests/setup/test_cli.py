"""The console program: commands are found as modules, and users get readable errors."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import IO

import pytest

from onionlab import cli, paths
from onionlab.commands._arguments import add_request_arguments
from onionlab.commands._request import parse_request
from onionlab.errors import UserError
from onionlab.experiment import experiment_names
from onionlab.runs import places

REPOSITORY = Path(__file__).resolve().parents[2]


def onionlab(
    *arguments: str, stdout: int | IO[str] = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onionlab", *arguments],
        cwd=REPOSITORY,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_every_module_is_a_verb() -> None:
    folder = REPOSITORY / "onionlab/commands"
    verbs = {p.stem.replace("_", "-") for p in folder.glob("*.py") if not p.name.startswith("_")}
    assert set(cli.command_modules()) == verbs
    assert {"build", "check-variants", "doctor"} <= verbs
    text = onionlab("--help").stdout
    for verb, module in cli.command_modules().items():
        command = cli.load_command(module)
        assert command.HELP
        assert cli.help_of(module) == command.HELP
        assert "\n" not in command.HELP
        assert f"    {verb}" in text


@pytest.mark.parametrize(
    ("verb", "unneeded"),
    [
        ("build", "pandas snakemake rich"),
        # Each run starts a process with run-one. Importing scipy.stats would add a tenth to the
        # time of a small run.
        ("run-one", "pandas scipy.stats matplotlib"),
        ("analyse", "pandas scipy.stats matplotlib"),
    ],
)
def test_only_what_a_verb_needs_is_loaded(verb: str, unneeded: str) -> None:
    code = (
        f"import sys; from onionlab.cli import build_parser; build_parser('{verb}');"
        f"sys.exit(any(name in sys.modules for name in '{unneeded}'.split()))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0


@pytest.mark.parametrize("arguments", [(), ("no-such-verb",), ("build", "--no-such-option")])
def test_wrong_arguments_exit_with_2(arguments: tuple[str, ...]) -> None:
    result = onionlab(*arguments)
    assert result.returncode == 2
    assert "usage: onionlab" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("text", ["rr,ewma", "rr ewma", " rr, ewma,", "rr\tewma"])
def test_names_are_listed_with_commas_or_spaces(text: str) -> None:
    parser = argparse.ArgumentParser()
    add_request_arguments(parser)
    assert parse_request(parser.parse_args(["quick", "--variants", text])).variants == (
        "rr",
        "ewma",
    )
    with pytest.raises(SystemExit):
        parser.parse_args(["quick", "--variants", ","])


def play(
    monkeypatch: pytest.MonkeyPatch,
    raised: BaseException | None = None,
    status: int = 0,
    **more: object,
) -> None:
    """Replace all commands by `play`. It raises ``raised``, or returns ``status`` if that is None.

    more: further attributes of the command's module, such as STATUSES.
    """

    def run(_: argparse.Namespace) -> int:
        if raised is not None:
            raise raised
        return status

    verb = {"HELP": "play", "setup_arguments": lambda _: None, "run": run, **more}
    monkeypatch.setattr(cli, "command_modules", lambda: {"play": "play"})
    monkeypatch.setattr(cli, "load_command", lambda _: types.SimpleNamespace(**verb))


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (UserError("no"), 2, "error: no"),
        (UserError("no", "do this"), 2, "error: no\ndo this"),
        (
            OSError(errno.EXDEV, "Invalid link", "/a", None, "/b"),
            2,
            "error: /a -> /b: Invalid link",
        ),
        (OSError(errno.ENOSPC, "full", "/a/b"), 2, "error: /a/b: full\nfree some space there"),
        (
            PermissionError(errno.EACCES, "Permission denied", b"/a"),
            2,
            "error: /a: Permission denied\nchange its permissions, or use a checkout of your own",
        ),
        (OSError(errno.EIO, "Input/output error"), 2, "error: Input/output error"),
        (OSError(errno.ENAMETOOLONG, "no", "a" * 300), 2, f"error: {'a' * 200}...: no"),
        (OSError(), 2, "error: OSError"),
        (MemoryError(), 2, "error: out of memory\nFree memory, or reduce SCALE or JOBS."),
        (RecursionError("maximum"), 2, "error: a file is nested too deeply to be read"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyboardInterrupt("2 of 9 runs stay"), 130, "interrupted: 2 of 9 runs stay"),
    ],
)
def test_an_error_is_a_message_and_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException,
    status: int,
    message: str,
) -> None:
    play(monkeypatch, raised)
    assert cli.main(["play"]) == status
    assert capsys.readouterr() == ("", f"{message}\n")


@pytest.mark.parametrize("under_make", [False, True])
@pytest.mark.parametrize(("status", "meaning"), [(3, "not settled"), (0, "fine"), (4, "")])
def test_an_exit_status_is_printed_because_make_hides_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    under_make: bool,
    status: int,
    meaning: str,
) -> None:
    """Nothing is printed without make, for the status 0, or for statuses not in STATUSES."""
    play(
        monkeypatch,
        status=status,
        STATUSES={0: "fine", 3: "not settled"},
        setup_arguments=lambda parser: parser.add_argument("a"),
    )
    monkeypatch.delenv("MAKELEVEL", raising=False)
    if under_make:
        monkeypatch.setenv("MAKELEVEL", "1")
    assert cli.main(["play", "--", "it's"]) == status
    printed = capsys.readouterr().err
    if under_make and status == 3:
        command = """.venv/bin/onionlab play -- 'it'"'"'s'"""
        assert printed == f"exit status 3: {meaning}\nmake ends with 2; to end with 3: {command}\n"
    else:
        assert printed == ""


def test_a_defect_has_a_traceback_and_no_status_of_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {
        status
        for module in cli.command_modules().values()
        for status in cli.own_statuses(cli.load_command(module))
    }
    assert 1 in answers
    assert cli.EXIT_DEFECT not in answers
    play(monkeypatch, ZeroDivisionError("no"))
    assert cli.main(["play"]) == cli.EXIT_DEFECT
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback")
    assert "\nZeroDivisionError: no\nerror: this is a defect of onionlab" in printed


def test_a_full_disk_is_named_where_the_error_names_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: types.SimpleNamespace(free=0))
    error = places.user_error_from_os_error(OSError(errno.ENOSPC, "No space left on device"))
    assert str(REPOSITORY) in error.message
    assert error.message.endswith(": No space left on device")
    assert error.hint == "free some space there"


def test_a_copy_that_fails_is_one_line_with_a_remedy(tmp_path: Path) -> None:
    """`shutil.copytree` collects the errors of all files in one exception."""
    full = str(OSError(errno.ENOSPC, "No space left on device", "here/a"))
    error = places.user_error_from_os_error(shutil.Error([("here/a", "there/a", full)] * 1000))
    assert error.message == "here/a -> there/a: No space left on device"
    assert error.hint == "free some space there"
    error = places.user_error_from_os_error(shutil.Error([("a", "b", "`a` is a named pipe")]))
    assert error.message == "a -> b: `a` is a named pipe"
    error = places.user_error_from_os_error(shutil.Error("Destination path exists"))
    assert error.message == "Destination path exists"


def test_no_text_controls_the_terminal() -> None:
    """Control characters, which other users' manifests or logs may contain, are printed escaped."""
    code = (
        "import sys; from onionlab import cli; cli.main(['list'])\n"
        "for output in sys.stdout, sys.stderr: print('\\x1b]0;title\\x07\\x9b31m\\t.', file=output)"
    )
    words = [sys.executable, "-c", code]
    result = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for text in (result.stdout, result.stderr):
        assert text.splitlines()[-1] == "\\x1b]0;title\\x07\\x9b31m\t."


def test_an_import_is_not_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt during an import takes effect after the import.

    During the import, compiled modules could turn the interrupt into another error.
    """
    (tmp_path / "interrupted.py").write_text(
        "import os, pathlib, signal\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "pathlib.Path(__file__).with_name('imported').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cli.load_command("interrupted")
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_command_with_closed_output_continues_and_keeps_its_status(
    tmp_path: Path, closed: str
) -> None:
    code = """
    import argparse, pathlib, subprocess, sys, types
    from onionlab import cli

    def run(args: argparse.Namespace) -> int:
        for number in range(3):
            print(number)
            print(number, file=sys.stderr)
            subprocess.run(["echo", "child"], check=True)
        pathlib.Path("done").touch()
        return 3

    play = types.SimpleNamespace(HELP="play", setup_arguments=lambda _: None, run=run)
    cli.command_modules, cli.load_command = lambda: {"play": "play"}, lambda _: play
    sys.exit(cli.main(["play"]))
    """
    read_end, write_end = os.pipe()
    os.close(read_end)
    outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: write_end}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
        text=True,
        check=False,
        stdout=outputs["stdout"],
        stderr=outputs["stderr"],
    )
    os.close(write_end)
    assert (tmp_path / "done").exists()
    assert result.returncode == 3
    if closed == "stdout":
        assert result.stderr == "0\n1\n2\n"
    else:
        assert result.stdout == "0\nchild\n1\nchild\n2\nchild\n"


@pytest.mark.parametrize("verb", ["list", "--help"])
def test_a_full_disk_at_standard_output_is_one_error(verb: str) -> None:
    with Path("/dev/full").open("w") as full:
        result = onionlab(verb, stdout=full)
    assert result.stderr == (
        "error: standard output cannot be written: No space left on device\nfree some space there\n"
    )
    assert result.returncode == cli.EXIT_USER_ERROR


def test_the_working_root_is_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.working_root() == paths.code_root() == REPOSITORY
    assert experiment_names(tmp_path) == []
