"""The real Tor with the shipped patches. Builds what is not built yet; `build/` keeps it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from onionlab.programs.tor.build import BuiltTor, ensure_variants
from onionlab.programs.tor.check import check_series, new_problems
from onionlab.programs.tor.variants import load_registry, tor_series

pytestmark = [pytest.mark.tor, pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[2]
REGISTRY = load_registry(REPOSITORY)
OWN_TESTS = {
    "circuit-policy": "circuitmux",
    "stream-order": "stream_order",
    "cell-trace": "celltrace",
}
"""What the names of the unit tests begin with that a series brings."""

TESTED = ("circuit-policy", "stream-order+cell-trace")
"""The builds that hold all series. Compiling Tor's unit tests takes minutes for each of them, and
an experiment that traces cells runs such a build too."""

PATCHED = [name for name, variant in REGISTRY.variants.items() if variant.series]


@pytest.fixture(scope="module")
def builds() -> dict[str, BuiltTor]:
    return ensure_variants(REPOSITORY, REGISTRY.variants, say=print)


def verify(tor: Path, torrc: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Ask a Tor what it thinks of the options; it opens no port for that."""
    file = folder / "torrc"
    file.write_text("".join(f"{option} {value}\n" for option, value in torrc.items()))
    command: list[str | Path] = [tor, "--verify-config", "-f", file, "--DataDirectory", folder]
    command += ["--defaults-torrc", "/dev/null"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", REGISTRY.variants)
def test_a_variant_takes_its_own_options(
    builds: dict[str, BuiltTor], tmp_path: Path, name: str
) -> None:
    result = verify(builds[name].tor, REGISTRY.variants[name].torrc, tmp_path)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name", PATCHED)
def test_stock_refuses_the_options_of_a_patch(
    builds: dict[str, BuiltTor], tmp_path: Path, name: str
) -> None:
    """Otherwise a build without its patches could pass for the variant."""
    result = verify(builds["stock"].tor, REGISTRY.variants[name].torrc, tmp_path)
    assert result.returncode != 0


def test_a_build_says_what_it_was_made_of(builds: dict[str, BuiltTor]) -> None:
    for name, built in builds.items():
        series = REGISTRY.variants[name].series
        expected = (
            [] if series is None else [p.sha256 for p in tor_series(REPOSITORY, series).patches]
        )
        assert [patch["sha256"] for patch in built.source["patches"]] == expected
        assert built.version.startswith("0.4.9.")
        assert len(built.source["tor"]["sha256"]) == 64


def test_no_path_of_this_checkout_is_in_an_executable(builds: dict[str, BuiltTor]) -> None:
    for built in builds.values():
        for program in (built.tor, built.gencert):
            assert str(REPOSITORY).encode() not in program.read_bytes()


def test_every_series_is_tested() -> None:
    series = [part for build in TESTED for part in build.split("+")]
    assert sorted(series) == sorted(REGISTRY.series) == sorted(OWN_TESTS)


def test_tors_own_circuitmux_tests_pass_on_every_build() -> None:
    """The whole suite, also with AddressSanitizer, is `make check-variants`."""
    outcomes = check_series(REPOSITORY, TESTED, say=print, only="circuitmux", hardened=[False])
    assert new_problems(outcomes) == []
    assert all(not outcome.failed for outcome in outcomes)
    stock, *patched = outcomes
    assert len(stock.passed) >= 10
    for outcome in patched:
        assert outcome.passed >= stock.passed


@pytest.mark.parametrize(
    ("build", "series"), [(build, part) for build in TESTED for part in build.split("+")]
)
def test_the_tests_that_a_series_brings_pass(build: str, series: str) -> None:
    outcomes = check_series(
        REPOSITORY, [build], say=print, only=OWN_TESTS[series], hardened=[False]
    )
    stock, patched = outcomes
    assert not patched.failed
    assert patched.passed > stock.passed
