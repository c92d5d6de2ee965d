"""Parsing the output of Tor's tests, and attributing failures to a patch series."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from onionlab.cli import main
from onionlab.commands import check_variants
from onionlab.programs.tor.build_trees import rewrite_embedded_paths
from onionlab.programs.tor.check import (
    Outcome,
    check_series,
    new_problems,
    parse_test_output,
    read_program,
)

from .conftest import FILES, diff

pytestmark = pytest.mark.usefixtures("tor_source")

# Verdicts in all forms that src/ext/tinytest.c of Tor 0.4.9 prints.
OUTPUT = """\
circuitmux/basic: OK
circuitmux/forked: [forking] OK
util/talks: [forking] Nov 21 01:00:00.000 [warn] something to say
 more of it
OK
config/off: DISABLED
sandbox/other: SKIPPED
dir/late: [forking] SKIPPED
src/lib/foo.c: not a test
buffer/compress/zstd: [forking] OK
util/wrong: [forking]
  FAIL src/test/test_util.c:12: assert(a == b)
  [wrong FAILED]
util/alsowrong:
  FAIL src/test/test_util.c:15: assert(a)
  [alsowrong FAILED]
util/lost: [forking] [Lost connection!]
  [lost FAILED]
3/9 TESTS FAILED. (3 skipped)
"""


def test_every_form_of_verdict() -> None:
    passed, failed, skipped = parse_test_output(OUTPUT)
    assert passed == {"circuitmux/basic", "circuitmux/forked", "util/talks", "buffer/compress/zstd"}
    assert failed == {"util/wrong", "util/alsowrong", "util/lost"}
    assert skipped == {"config/off", "sandbox/other", "dir/late"}


@pytest.mark.parametrize("rest", ["", "tor: src/x.c:1: f: Assertion x failed; aborting.\n"])
def test_a_case_that_brings_its_program_down_has_failed(rest: str) -> None:
    text = f"util/fine: OK\nutil/crash: {rest}"
    assert parse_test_output(text) == ({"util/fine"}, {"util/crash"}, set())
    text = f"util/crash: {rest}\nutil/fine: OK\n"
    assert parse_test_output(text) == ({"util/fine"}, {"util/crash"}, set())


MANY = {f"many/{number}" for number in range(9)}


def outcome(build: str = "stock", **names: set[str]) -> Outcome:
    return Outcome(build, False, **names)  # type: ignore[arg-type]


def test_only_tests_that_pass_on_stock_count_against_a_series() -> None:
    stock = outcome(passed={"a/1", "a/2", "a/3"} | MANY, failed={"net/1"}, skipped={"root/1"})
    stock.reports = {"src/test/test_bt.sh": ["ERROR: AddressSanitizer: SEGV"]}
    same = outcome("mine", passed=stock.passed | {"mine/1"}, failed={"net/1"}, skipped={"root/1"})
    same.reports = dict(stock.reports)
    assert new_problems([stock, same]) == []
    worse = outcome(
        "mine", passed={"net/1"} | MANY, failed={"a/1", "mine/1"}, skipped={"a/2", "root/1"}
    )
    worse.reports = {"src/test/test": ["ERROR: AddressSanitizer: heap-use-after-free"]}
    assert new_problems([stock, worse]) == [
        "mine: a/1 failed",
        "mine: mine/1 failed",
        "mine: a/3 did not run",
        "mine: a/2 is now skipped",
        "mine: src/test/test: ERROR: AddressSanitizer: heap-use-after-free",
    ]


def test_a_program_that_fails_without_a_failed_case_has_failed_itself() -> None:
    one = outcome()
    read_program(
        one, "src/test/test", "a/1: OK\nERROR: LeakSanitizer: detected memory leaks", False
    )
    read_program(one, "src/test/test_script.sh", "no cases here", True)
    read_program(one, "src/test/test_other.sh", "", None)
    assert one.passed == {"a/1", "src/test/test_script.sh"}
    assert one.failed == {"src/test/test"}
    assert one.skipped == {"src/test/test_other.sh"}
    assert one.reports == {"src/test/test": ["ERROR: LeakSanitizer: detected memory leaks"]}


def test_a_copied_tree_knows_its_own_place(tmp_path: Path) -> None:
    header = tmp_path / "orconfig.h"
    header.write_text('#define BUILDDIR "/gone"\n#define OTHER "/gone"\n#define SRCDIR "/gone"\n')
    os.utime(header, (1000, 1000))
    rewrite_embedded_paths(tmp_path, str(tmp_path))
    assert header.read_text() == (
        f'#define BUILDDIR "{tmp_path}"\n#define OTHER "/gone"\n#define SRCDIR "{tmp_path}"\n'
    )
    # All files include this header, so a new time stamp would recompile all of Tor.
    assert header.stat().st_mtime == 1000


# Tests with builds of the small source


def replace_patch(checkout: Path, text: str) -> None:
    (checkout / "tor-patches/greeting/0001-greeting.patch").write_text(text)


TEST_C = FILES["src/test/test.c"]
NEW_CASE = diff(
    "src/test/test.c",
    TEST_C,
    TEST_C.replace("  return 0;\n}", '  printf("circuitmux/mine: OK\\n");\n  return 0;\n}'),
)
BROKEN = diff("src/test/test.c", TEST_C, TEST_C.replace("basic: OK", "basic: \\n  [basic FAILED]"))


def test_a_harmless_series(checkout: Path) -> None:
    replace_patch(checkout, NEW_CASE)
    stock, mine = check_series(checkout, hardened=[False])
    assert stock.passed == {
        "circuitmux/basic",
        "circuitmux/forked",
        "src/test/test_script.sh",
        "make check-spaces",
        "make check-includes",
        "util/part_two",
    }
    assert stock.skipped == {"util/no_network"}
    assert mine.passed == stock.passed | {"circuitmux/mine"}
    written = json.loads((checkout / "build/check-variants.json").read_text())
    assert written["problems"] == []
    assert [one["build"] for one in written["builds"]] == ["stock", "greeting"]
    assert written["builds"][1]["passed"] == sorted(mine.passed)


SCRIPT = "src/test/test_script.sh"
SECOND_TIME = diff(
    SCRIPT, FILES[SCRIPT], "#!/bin/sh\n[ -e was-here ] || { touch was-here; echo %s; exit 1; }\n"
)


@pytest.mark.parametrize(
    ("patch", "retried", "problems"),
    [
        (
            BROKEN + diff("src/bad-style", "", "no\n"),
            [],
            ["circuitmux/basic failed", "make check-includes failed", "make check-spaces failed"],
        ),
        # A program that fails is run again, because the machine may have been busy.
        (SECOND_TIME % "late", [SCRIPT], []),
        (
            SECOND_TIME % "ERROR: AddressSanitizer: SEGV",
            [],
            [f"{SCRIPT} failed", f"{SCRIPT}: ERROR: AddressSanitizer: SEGV"],
        ),
    ],
    ids=["tests and style", "fails once", "sanitizer"],
)
def test_a_harmful_series(
    checkout: Path, patch: str, retried: list[str], problems: list[str]
) -> None:
    replace_patch(checkout, patch)
    stock, mine = check_series(checkout, hardened=[False])
    assert (stock.retried, mine.retried) == ([], retried)
    assert new_problems([stock, mine]) == [f"greeting: {problem}" for problem in problems]


def test_unit_tests_are_compiled_once_for_a_series(
    checkout: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def check() -> tuple[list[Outcome], int]:
        """Return the outcomes of the tests, and how many compilations they needed."""
        caplog.clear()
        outcomes = check_series(checkout, only="circuitmux", hardened=[False])
        return outcomes, sum("compile" in line for line in caplog.messages)

    outcomes, compilations = check()
    assert "circuitmux/basic" in outcomes[1].passed
    assert compilations == 2
    assert check()[1] == 0
    replace_patch(checkout, NEW_CASE)
    outcomes, compilations = check()
    assert "circuitmux/mine" in outcomes[1].passed
    assert compilations == 1


def test_the_verb_prints_a_table_and_the_new_failures(
    checkout: Path,
    tiny_tarball: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("TOR_SOURCE")
    monkeypatch.setattr(check_variants, "working_root", lambda: checkout)
    words = ["check-variants", "--plain", "--only", "circuitmux", f"--tor-source={tiny_tarball}"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "No series is worse than Tor as released." in out
    rows = [line.split() for line in out.splitlines()]
    assert ["build", "passed", "failed", "skipped", "reports", "time"] in rows
    assert ["greeting", "2", "0", "1", "0"] in [row[:5] for row in rows]
    replace_patch(checkout, BROKEN)
    assert main(words) == 1
    out = capsys.readouterr().out
    assert out.endswith("Worse than Tor as released:\n  greeting: circuitmux/basic failed\n")
