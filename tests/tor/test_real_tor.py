"""The real Tor with the shipped patches. Missing builds are made and kept in `build/`."""

from __future__ import annotations

import functools
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import shipped
from _pytest.mark import ParameterSet
from harness.checkout import share_builds, ship

from onionlab.experiment.tor_parameters import (
    ADDED_LISTS,
    CONDITIONS,
    CONSENSUS_PARAMETERS,
    LIMITS,
    OPTION_DEFAULTS,
    OVERRIDES,
    PARAMETER_DEFAULTS,
    REPLACED_LISTS,
)
from onionlab.programs.sources import find_source
from onionlab.programs.tor.build import BuiltTor, ensure_variants
from onionlab.programs.tor.build_trees import tor_directory
from onionlab.programs.tor.check import Outcome, check_series, new_problems
from onionlab.programs.tor.tor_source import TOR
from onionlab.programs.tor.variants import STOCK, load_registry

pytestmark = pytest.mark.tor

REPOSITORY = Path(__file__).resolve().parents[2]
REGISTRY = load_registry(REPOSITORY)
OWN_TESTS = {
    "circuit-policy": "circuitmux",
    "stream-order": "stream_order",
    "cell-trace": "celltrace",
}
"""Patch series -> prefix of the names of its unit tests."""

TESTED = ("circuit-policy", "stream-order+cell-trace")
"""Two builds that together contain all patch series. There are only two, because compiling Tor's
unit tests takes minutes for each. The second one combines two series, as experiments that trace
cells do."""

QUICK_SERIES = "circuit-policy"
"""The series that `make test` and the experiment `quick` build."""


def variant_parameters(names: Iterable[str]) -> list[ParameterSet]:
    """Return a parameter for each variant.

    A variant has the mark `slow` if its build is not that of QUICK_SERIES.
    """
    slow = {name for name in names if REGISTRY.variants[name].series != QUICK_SERIES}
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in names]


SHIPPED = [name for name in REGISTRY.variants if name in shipped.VARIANTS]
VARIANTS = pytest.mark.parametrize("name", variant_parameters(SHIPPED))
PATCHED = [name for name in SHIPPED if REGISTRY.variants[name].series]


@pytest.fixture(scope="module")
def builds() -> dict[str, BuiltTor]:
    """Return the builds of all shipped variants. Building them together saves time."""
    return ensure_variants(REPOSITORY, SHIPPED)


@pytest.fixture
def built(request: pytest.FixtureRequest, name: str) -> BuiltTor:
    """Return the build of a variant."""
    if REGISTRY.variants[name].series == QUICK_SERIES:
        return ensure_variants(REPOSITORY, [name])[name]
    builds: dict[str, BuiltTor] = request.getfixturevalue("builds")
    return builds[name]


def verify(tor: Path, torrc: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Let Tor check the options without opening a port."""
    file = folder / "torrc"
    file.write_text("".join(f"{option} {value}\n" for option, value in torrc.items()))
    command: list[str | Path] = [tor, "--verify-config", "-f", file, "--DataDirectory", folder]
    command += ["--defaults-torrc", "/dev/null"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@VARIANTS
def test_a_variant_accepts_its_options(built: BuiltTor, tmp_path: Path, name: str) -> None:
    result = verify(built.path, REGISTRY.variants[name].torrc, tmp_path)
    assert result.returncode == 0, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", PATCHED)
def test_stock_refuses_the_options_of_a_patch(
    builds: dict[str, BuiltTor], tmp_path: Path, name: str
) -> None:
    """This keeps a build without the patches from being mistaken for the variant."""
    result = verify(builds["stock"].path, REGISTRY.variants[name].torrc, tmp_path)
    assert result.returncode != 0


def test_the_tables_of_parameters_and_lists_match_tors_source() -> None:
    source = find_source(TOR, tor_directory(REPOSITORY) / "source")
    if source is None or not (source.version or "").startswith("0.4.9."):
        pytest.skip("needs the source package of Tor 0.4.9, which a build of it leaves")
    with tarfile.open(source.path) as tarball:
        texts = {
            member.name: stream.read().decode("utf-8", "replace")
            for member in tarball
            if re.search(r"/src/(app|core|feature)/.*\.(?:[ch]|inc)$", member.name)
            and (stream := tarball.extractfile(member))
        }
    lists = {
        one or port
        for name, text in texts.items()
        if name.endswith(("app/config/config.c", "_options.inc"))
        for one, port in re.findall(
            r'(?:V|VAR|CONF_VAR)\("?([A-Z]\w+)"?,\s*LINELIST(?:_S)?,|VPORT\(([A-Z]\w+)\)', text
        )
    }
    assert {name.casefold() for name in lists} == ADDED_LISTS | REPLACED_LISTS
    found = parameters_read(texts.values())
    assert found.keys() == CONSENSUS_PARAMETERS.keys()
    for name, limits in found.items():
        accepted = CONSENSUS_PARAMETERS[name]
        for limit, ours in zip(limits, (accepted[0], accepted[-1]), strict=False):
            # Some limits are variables in Tor's source.
            assert limit in (ours, None), name


def parameters_read(texts: Iterable[str]) -> dict[str, list[int | None]]:
    """Return parameter -> limits for all parameters that C files read.

    A call without limits gives an empty list. A limit that is not constant is None.
    """
    texts = [re.sub(r"/\*.*?\*/|\\\n|\((?:int|\w+_t)\)", " ", text, flags=re.S) for text in texts]
    joined = "\n".join(texts)
    macros = dict(re.findall(r"#define +(\w+) +(.+)", joined))
    macros |= dict(re.findall(r"\b(\w+) *= *(\d+) *[,;\n]", joined))
    macros |= {f"INT{bits}_MAX": str(2 ** (bits - 1) - 1) for bits in (16, 32)}
    macros |= {f"UINT{bits}_MAX": str(2**bits - 1) for bits in (8, 16)}

    def limit(expression: str) -> int | None:
        while names := re.findall(r"[A-Za-z_]\w*", expression):
            if not macros.keys() >= set(names):
                return None
            expression = re.sub(r"[A-Za-z_]\w*", lambda m: f"({macros[m[0]]})", expression)
        return int(eval(expression, {}))

    found: dict[str, list[int | None]] = {}
    for text in texts:
        for call in re.findall(
            r"\b(?:networkstatus_get_param|dirvote_get_intermediate_param_value)"
            r"\s*\(\s*[\w>-]+,([^;]+?)\)\s*[;)/*]",
            text,
        ):
            argument, _, *limits = (one.strip() for one in call.split(","))
            # The argument may be a variable, to which the same file assigns names.
            names = re.findall(rf'\b{argument}(?:\[\])?\s*=\s*"([\w-]+)"', text)
            if argument in macros or argument.startswith('"'):
                names.append(macros.get(argument, argument).strip('" '))
            found |= {name: [limit(one) for one in limits[:2]] for name in names}
    return found


def test_options_that_override_parameters_exist() -> None:
    (built,) = ensure_variants(REPOSITORY, ["ewma"]).values()
    known = {name.casefold() for name in built.torrc_options | CONSENSUS_PARAMETERS.keys()}
    assert {one.option.casefold() for one in (*OVERRIDES, *CONDITIONS)} <= known
    assert {name.casefold() for name in (*OPTION_DEFAULTS, *PARAMETER_DEFAULTS)} <= known
    assert LIMITS.keys() <= known
    for one in OVERRIDES:
        assert any(map(one.concerns, CONSENSUS_PARAMETERS)), one
    for one in CONDITIONS:
        assert any(map(one.concerns, known)), one


@VARIANTS
def test_a_build_reads_each_parameter(built: BuiltTor, name: str) -> None:
    assert built.unread_parameters([*CONSENSUS_PARAMETERS, "cc_algo"]) == ["cc_algo"]


@VARIANTS
def test_no_path_of_this_checkout_is_in_an_executable(built: BuiltTor, name: str) -> None:
    for program in (built.path, built.path.with_name("tor-gencert")):
        assert str(REPOSITORY).encode() not in program.read_bytes()


def test_every_series_is_tested() -> None:
    series = [part for build in TESTED for part in build.split("+")]
    assert sorted(series) == sorted(OWN_TESTS)
    assert set(OWN_TESTS) <= set(REGISTRY.series)
    shipped.require_named(REGISTRY.series, OWN_TESTS, "tests/tor/test_real_tor.py")


@pytest.fixture(scope="module")
def run_unit_tests(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Outcome]]:
    """Return a function that runs unit tests on the released Tor and on each build of TESTED.

    Its argument is the prefix of the tests' names. The outcomes for a prefix are kept, so the tests
    run only once. The tests write to a temporary root, but use the builds of this checkout.
    """
    root = tmp_path_factory.mktemp("root")
    ship(root)
    share_builds(root)

    @functools.cache
    def check(only: str) -> list[Outcome]:
        return check_series(root, TESTED, only=only, hardened=[False])

    return check


@pytest.mark.slow
def test_tors_own_circuitmux_tests_pass_on_every_build(
    run_unit_tests: Callable[[str], list[Outcome]],
) -> None:
    """This is a small part of `make check-variants`, which runs all of Tor's tests."""
    outcomes = run_unit_tests("circuitmux")
    assert new_problems(outcomes) == []
    assert all(not outcome.failed for outcome in outcomes)
    stock, *patched = outcomes
    assert len(stock.passed) >= 10
    for outcome in patched:
        assert outcome.passed >= stock.passed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "series"), [(build, part) for build in TESTED for part in build.split("+")]
)
def test_the_tests_that_a_series_brings_pass(
    run_unit_tests: Callable[[str], list[Outcome]], build: str, series: str
) -> None:
    outcomes = {outcome.build: outcome for outcome in run_unit_tests(OWN_TESTS[series])}
    assert not outcomes[build].failed
    assert outcomes[build].passed > outcomes[STOCK].passed
