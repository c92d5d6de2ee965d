"""Run Tor's own tests on every build and report what a patch series changes.

Each series is built twice: without sanitizers, and with AddressSanitizer and
UndefinedBehaviorSanitizer (Tor's option ``--enable-fragile-hardening``). Then ``make check`` runs
the unit tests, the slow tests and the scripts of each build. On some machines, tests fail or are
skipped regardless of the patches, for example as root or without network access. Tor as released is
therefore the reference: a failure that also occurs there does not count against a series. The quick
check runs only the unit tests with a given prefix, compiled without optimisation.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from analysis.formats.durable import write_whole
from onionlab.errors import UserError
from onionlab.paths import build_directory
from onionlab.programs.building import build_lock, new_log, run_logged, work_directory
from onionlab.programs.tor.build import series_name
from onionlab.programs.tor.build_trees import (
    UNIT_TESTS,
    Inputs,
    check_patches_apply,
    compile_targets,
    ensure_base,
    ensure_unit_tests,
    make_command,
    patched_tree,
    prepare,
    rewrite_embedded_paths,
    tor_directory,
)
from onionlab.programs.tor.variants import STOCK, load_registry, tor_series

LOG = logging.getLogger(__name__)
# Targets of Tor's makefile that check the style of the source, as Tor's maintainers do before a
# merge. check-changes is omitted because releases do not contain its program.
STYLE_CHECKS = ("check-spaces", "check-includes")
# Variables with which test scripts find the tree. configure wrote the base tree's paths into the
# Makefile, so make gets the paths of the patched copy on its command line.
PATH_VARIABLES = ("abs_builddir", "abs_srcdir", "abs_top_builddir", "abs_top_srcdir")
MAX_FAILED_SHARE = 0.1
"""Maximum share of failed tests of Tor as released. Above it, a comparison is not meaningful."""
CASE = re.compile(r"([A-Za-z0-9_/-]+/[A-Za-z0-9_-]+):(?: (.*))?$")
RESULT_FILE = "check-variants.json"

# Count memory leaks as errors.
SANITIZER_ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
SANITIZER_REPORT = re.compile(
    r"ERROR: (?:Address|Leak)Sanitizer: .*|\S+:\d+:\d+: runtime error: .*"
)


@dataclass
class Outcome:
    """The test results of one build.

    Attributes:
        build: ``stock`` or the series.
        hardened: Whether the sanitizers are enabled.
        passed: Names of tests: ``group/case`` for Tor's unit tests, a path for other programs.
        failed: Tests that failed or did not end.
        skipped: Tests that Tor's own programs skipped.
        reports: First lines of the sanitizers' reports, by program.
        retried: Programs that failed at first and were run again separately.
        wall_s: The elapsed time, including compilation.
    """

    build: str
    hardened: bool
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    reports: dict[str, list[str]] = field(default_factory=dict)
    retried: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def title(self) -> str:
        """The build's name for messages."""
        return f"{self.build}, AddressSanitizer" if self.hardened else self.build


def check_series(
    root: Path,
    names: Iterable[str] | None = None,
    *,
    only: str | None = None,
    hardened: Sequence[bool] = (False, True),
    tor_source: str | None = None,
    jobs: int | None = None,
) -> list[Outcome]:
    """Run Tor's tests on Tor as released and on patch series.

    Write the results to ``build/check-variants.json``.

    Args:
        root: The checkout.
        names: Patch series; by default all series of the registry.
        only: Run only unit tests with this prefix, e.g. ``circuitmux``.
        hardened: The builds to test: plain (False), with sanitizers (True).
        tor_source: See :func:`onionlab.programs.tor.build.ensure_variants`.
        jobs: The number of parallel compilers and test programs.

    Returns:
        The outcomes: for each value of ``hardened``, Tor as released and then the series.

    Raises:
        UserError: No source, a patch that does not apply, a build that fails, or no test with the
            prefix ``only``.
    """
    series = [tor_series(root, name, tests=True) for name in names or load_registry(root).series]
    outcomes: list[Outcome] = []
    with build_lock(tor_directory(root), "Tor"):
        plain = prepare(root, tor_source=tor_source, jobs=jobs)
        check_patches_apply(replace(plain, hardened=hardened[0]), series)
    for sanitized in hardened:
        inputs = replace(plain, hardened=sanitized)
        for one in (None, *series):
            started_s = time.monotonic()
            outcome = Outcome(series_name(one), sanitized)
            if only:
                with build_lock(tor_directory(root), "Tor"):
                    program = ensure_unit_tests(inputs, one, outcome.title)
                _run_unit_tests(inputs, program, outcome, only)
            else:
                with build_lock(tor_directory(root), "Tor"):
                    base = ensure_base(inputs)
                with patched_tree(inputs, base, one) as tree:
                    _run_all_tests(inputs, tree, outcome)
            outcome.wall_s = round(time.monotonic() - started_s, 1)
            outcomes.append(outcome)
            LOG.info(
                "%s: %d passed, %d failed, %d skipped, %.0f s",
                *(outcome.title, len(outcome.passed), len(outcome.failed), len(outcome.skipped)),
                outcome.wall_s,
            )
    if only and not any(outcome.passed | outcome.failed for outcome in outcomes):
        raise UserError(f"no unit test of Tor begins with {only!r}")
    builds = [asdict(outcome) for outcome in outcomes]
    document = {"format": 1, "only": only, "builds": builds, "problems": new_problems(outcomes)}
    text = json.dumps(document, indent=2, default=sorted)
    write_whole(build_directory(root) / RESULT_FILE, text + "\n")
    return outcomes


def new_problems(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the problems of each series relative to Tor as released, in sentences."""
    outcomes = list(outcomes)
    stock = {one.hardened: one for one in outcomes if one.build == STOCK}
    problems = []
    for one in outcomes:
        if one.build == STOCK:
            # The reference itself has to have valid results.
            count = len(one.passed | one.failed)
            if len(one.failed) > MAX_FAILED_SHARE * count:
                problems.append(
                    f"{one.title}: {len(one.failed)} of {count} tests failed: "
                    "too many for a comparison"
                )
            continue
        yardstick = stock[one.hardened]
        for names, what in (
            (one.failed - yardstick.failed, "failed"),
            (yardstick.passed - one.passed - one.failed - one.skipped, "did not run"),
            (yardstick.passed & one.skipped, "is now skipped"),
        ):
            problems += [f"{one.title}: {name} {what}" for name in sorted(names)]
        problems += [
            f"{one.title}: {program}: {lines[0]}"
            for program, lines in sorted(one.reports.items())
            if program not in yardstick.reports
        ]
    return problems


def parse_test_output(text: str) -> tuple[set[str], set[str], set[str]]:
    """Return passed, failed and skipped cases in the output of one of Tor's unit test programs.

    The format is that of ``src/ext/tinytest.c``. The first line of a case begins with
    ``group/case: `` and may continue with ``[forking] ``. The verdict ends this line or, after
    messages, a later line: ``OK``, ``SKIPPED``, ``DISABLED`` or ``[case FAILED]``. A case without a
    verdict crashed its program, and counts as failed.
    """
    passed, failed, skipped = set[str](), set[str](), set[str]()
    current: str | None = None
    for line in text.splitlines():
        begun = CASE.match(line)
        if begun:
            if current is not None:
                failed.add(current)
            current = begun[1]
        if current is None:
            continue
        rest = (begun[2] or "") if begun else line
        if rest.rstrip().endswith(f"[{current.rpartition('/')[2]} FAILED]"):
            failed.add(current)
        elif re.search(r"(?:^|\s)(?:SKIPPED|DISABLED)\s*$", rest):
            skipped.add(current)
        elif re.search(r"(?:^|\s)OK\s*$", rest):
            passed.add(current)
        else:
            continue
        current = None
    if current is not None:
        failed.add(current)
    return passed, failed, skipped


def _run_unit_tests(inputs: Inputs, program: Path, outcome: Outcome, prefix: str) -> None:
    """Run the unit tests whose names begin with ``prefix``."""
    what = f"unit tests of {outcome.title}"
    log = new_log(inputs.directory, f"{what} {prefix}")
    with work_directory(inputs.directory) as work:
        # Two dots select every test with this prefix.
        command = [str(program), f"{prefix}.."]
        status = run_logged(
            command, work, log, what, environment=_environment(outcome), may_fail=True
        )
    output = log.read_text("utf-8", "replace")
    # Tor as released lacks the tests that a series adds, so it may lack tests with this prefix.
    if "No such test as" not in output:
        read_program(outcome, UNIT_TESTS, output, status == 0)


def _environment(outcome: Outcome) -> dict[str, str]:
    return SANITIZER_ENVIRONMENT if outcome.hardened else {}


def _run_all_tests(inputs: Inputs, tree: Path, outcome: Outcome) -> None:
    """Run ``make check`` and Tor's style checks (STYLE_CHECKS) in ``tree``."""
    what = f"tests of {outcome.title}"
    log = new_log(inputs.directory, what)
    rewrite_embedded_paths(tree, str(tree))
    # Run `make check` in two steps: a failed compilation is an error, a failed test is a result.
    compile_targets(inputs, tree, ["all"], what, log)
    make = [*make_command(inputs, tree), "-k", *(f"{name}={tree}" for name in PATH_VARIABLES)]
    environment = _environment(outcome)
    run_logged([*make, "check-TESTS"], tree, log, what, environment=environment, may_fail=True)
    outcome.retried = _failures_to_retry(tree)
    if outcome.retried:
        LOG.info("%s: running again separately: %s", what, " ".join(outcome.retried))
        # Some of Tor's tests measure time and fail on a busy machine, so run one at a time.
        again = [*make, "-j1", "check-TESTS", f"TESTS={' '.join(outcome.retried)}"]
        run_logged(again, tree, log, what, environment=environment, may_fail=True)
    _read_results(outcome, tree, log)
    for target in STYLE_CHECKS:
        status = run_logged([*make, target], tree, log, f"{what}: {target}", may_fail=True)
        (outcome.passed if status == 0 else outcome.failed).add(f"make {target}")


def _failures_to_retry(tree: Path) -> list[str]:
    """Return the test programs that failed without a sanitizer report, which is final."""
    return [
        result.relative_to(tree).with_suffix("").as_posix()
        for result in sorted(tree.rglob("*.trs"))
        if not re.search(r"^:global-test-result: (PASS|SKIP)", result.read_text(), re.MULTILINE)
        and not SANITIZER_REPORT.search(result.with_suffix(".log").read_text("utf-8", "replace"))
    ]


def _read_results(outcome: Outcome, tree: Path, log: Path) -> None:
    """Read the files of automake's test driver: a .trs (verdict) and a .log for each program."""
    results = sorted(tree.rglob("*.trs"))
    if not results:
        raise UserError(f"make check of {outcome.title} ran no test", f"Full output: {log}")
    for result in results:
        text = result.read_text("utf-8", "replace")
        verdict = re.search(r"^:global-test-result: (\w+)", text, re.MULTILINE)
        passed = {"PASS": True, "SKIP": None}.get(verdict[1] if verdict else "", False)
        program = result.relative_to(tree).with_suffix("").as_posix()
        output = result.with_suffix(".log").read_text("utf-8", "replace")
        read_program(outcome, program, output, passed)
    # The unit tests run in several parts, each of which reports the cases of the other parts as
    # skipped. A case that ran in one part is therefore not a skipped case.
    outcome.skipped -= outcome.passed | outcome.failed


def read_program(outcome: Outcome, program: str, output: str, passed: bool | None) -> None:
    """Add the results of one test program to ``outcome``.

    ``passed``: the program's own verdict; None if the program was skipped.
    """
    cases = parse_test_output(output)
    outcome.passed |= cases[0]
    outcome.failed |= cases[1]
    outcome.skipped |= cases[2]
    # Unit tests are counted by case. A failure of their program is counted only if no failed case
    # explains it, for example if the program ended before its last case.
    if not any(cases):
        verdicts = {True: outcome.passed, False: outcome.failed, None: outcome.skipped}
        verdicts[passed].add(program)
    elif passed is False and not cases[1]:
        outcome.failed.add(program)
    reports = list(dict.fromkeys(SANITIZER_REPORT.findall(output)))
    if reports:
        outcome.reports[program] = reports
