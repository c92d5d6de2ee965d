"""The rules for tests: marks, time limits and order, and that tests do not change existing runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import shipped
import suite_limits
import suite_order
import suite_roots

from .test_packaging import REPOSITORY, make, read

INI = """\
[pytest]
timeout = 50
markers =
    slow: x
    tor: x
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return an empty folder of tests, with settings like this project's and a short timeout."""
    pytester.makeini(INI)
    return pytester


def test_a_slow_test_without_the_mark_fails(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.makepyfile(
        """
        import time
        import pytest

        @pytest.fixture
        def built():
            time.sleep(0.05)

        def test_long():
            time.sleep(0.05)

        @pytest.mark.slow
        @pytest.mark.timeout(60)
        def test_marked():
            time.sleep(0.05)

        @pytest.mark.timeout(60)
        def test_of_something_built(built):
            pass
        """
    )
    with monkeypatch.context() as here:
        here.setenv("ONIONLAB_TESTS_SLOWER", "0.002")
        here.setattr(suite_limits, "crowding", lambda: 1.0)
        done = suite.runpytest_inprocess("-p", "suite_limits", "--timeout", "60")
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["It took 0.* s, and may take 0.0 s without the mark `slow`*"])


def test_a_test_that_hangs_is_ended(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.makepyfile("import time\ndef test_hang():\n    time.sleep(60)\n")
    with monkeypatch.context() as here:
        here.setenv("ONIONLAB_TESTS_SLOWER", "0.01")
        done = suite.runpytest_inprocess("-p", "suite_limits")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*Timeout (>0.5s)*"])


def test_files_that_take_long_exist() -> None:
    for name in suite_order.LONG_FILES:
        assert (REPOSITORY / "tests" / name).is_file(), name


def test_both_parts_together_are_all_tests() -> None:
    def pytest_arguments(target: str) -> str:
        """Return the arguments with which a make target calls pytest, without --numprocesses."""
        words = make(target).stdout.partition(" pytest ")[2].strip()
        return re.sub(r" --numprocesses (logical|\$\(\(.*?\)\))", "", words)

    quick, rest, everything = map(pytest_arguments, ("test", "test-rest", "test-all"))
    expression = quick.removeprefix(everything).strip()
    assert (words := re.fullmatch('-m "(.+)"', expression))
    assert rest == f'{everything} -m "not ({words[1]})"'
    steps = [line for line in read(".ci/run").splitlines() if "make " in line and "#" not in line]
    assert steps == ["make setup", "make lint", "make test", "exec make test-rest"]


@pytest.fixture
def user_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with a run and without results, and let suite_roots guard it."""
    root = tmp_path / "user"
    (root / "runs" / "0123").mkdir(parents=True)
    (root / "runs" / "0123" / "manifest.json").write_text("{}")
    monkeypatch.setattr(suite_roots, "REPOSITORY", root)
    return root


@pytest.mark.parametrize(
    ("does", "place"),
    [
        ("pass", None),
        ("shutil.rmtree(root / 'runs' / '0123')", "runs/0123"),
        ("(root / 'runs' / '0123' / 'manifest.json').write_text('')", "runs/0123/manifest.json"),
        ("(root / 'results' / 'x').mkdir(parents=True)", "results/x"),
        ("(root / 'build' / 'workflow').mkdir(parents=True)", "build/workflow"),
        ("(root / 'build' / 'tor').mkdir(parents=True)", None),
    ],
)
def test_a_test_that_touches_the_users_runs_or_results_fails_the_session(
    suite: pytest.Pytester, user_root: Path, does: str, place: str | None
) -> None:
    suite.makepyfile(
        f"import shutil\nfrom pathlib import Path\nroot = Path({str(user_root)!r})\n"
        f"def test_it():\n    {does}\n"
    )
    done = suite.runpytest_inprocess("-p", "suite_roots")
    done.assert_outcomes(passed=1)
    assert done.ret == (pytest.ExitCode.TESTS_FAILED if place else pytest.ExitCode.OK)
    if place:
        done.stdout.fnmatch_lines([f"  {place}"])


def test_users_files_fail_in_strict_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/reference/experiments.md"
    monkeypatch.delenv(shipped.STRICT, raising=False)
    shipped.require_named(["quick"], ["quick", "gone"], page)
    with pytest.raises(pytest.skip.Exception, match=r"not in docs/.*: mine, mine-too \(treated as"):
        shipped.require_named(["quick", "mine-too", "mine"], ["quick"], page)
    monkeypatch.setenv(shipped.STRICT, "1")
    shipped.require_named(["quick"], ["quick", "gone"], page)
    with pytest.raises(pytest.fail.Exception, match=r"not in docs/.*: mine$"):
        shipped.require_named(["quick", "mine"], ["quick"], page)
    assert f"export {shipped.STRICT}=" in read(".ci/run")
