"""A damaged file loads, or gives an error with its file and line."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onionlab.errors import UserError
from onionlab.experiment import load

from .conftest import LEVELS_AND_FIGURE, VALID, LoadText

FULL = (
    VALID
    + LEVELS_AND_FIGURE
    + """\
engine:
  tgen: {heartbeat: "1 s", loglevel: info}
  shadow: {general: {parallelism: 1}, experimental: {runahead: null}}
"""
)

ANY_LINE = re.compile(r"experiments/foo\.yaml:[0-9]+: \S.*")
RELAXED = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])

WORDS = """{} [] null ~ true -1 0 1e9 999999999999999999999999999999 .5 "" ' " : - ? &a *a !!int <<:
    % | > # \\ é { } [ ] , count levels overrides "1 s" none --- ... @ `""".split()  # noqa: SIM905
BREAKS = (
    *(": ", "- ", "? ", "&a ", "!!int ", "<<: ", "  "),
    *("---\n", "\t", "\n", "\r", "\0", "\ufeff"),
)
SNIPPETS = st.sampled_from([*WORDS, *BREAKS]) | st.text(max_size=8)


def test_the_whole_file_is_valid(load_text: LoadText) -> None:
    assert load_text(FULL).warnings == ()


def check(text: str, checkout: Path) -> None:
    content = text.encode("utf-8", "surrogatepass")
    (checkout / "experiments" / "foo.yaml").write_bytes(content)
    try:
        experiment = load("foo", root=checkout)
    except UserError as error:
        lines = error.message.splitlines()
        if len(lines) > 1:
            assert re.fullmatch(r"experiments/foo\.yaml: [0-9]+ things are wrong", lines.pop(0))
        last = len(re.findall("[\n\r\x85\u2028\u2029]", text)) + 1
        for line in map(str.strip, lines):
            assert ANY_LINE.fullmatch(line), repr(line)
            assert line.isprintable(), repr(line)
            assert 1 <= int(line.split(":")[1]) <= last, line
        return
    try:
        experiment.with_overrides(scale=0.1)
    except UserError as error:
        # At this scale, a small network may have too few relays.
        if not error.message.startswith("foo at SCALE=0.1: "):
            raise


@RELAXED
@given(st.integers(0, len(FULL)), st.integers(0, 12), SNIPPETS)
@example(0, 0, "\ufeff")
@example(len(FULL), 0, "\x00")
def test_any_edit(checkout: Path, start: int, length: int, snippet: str) -> None:
    check(FULL[:start] + snippet + FULL[start + length :], checkout)


def paths(value: object, prefix: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*prefix, key)
            yield from paths(child, (*prefix, key))


PATHS = list(paths(yaml.safe_load(FULL)))

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["all", "none", "regions", "1 s", "5 %", "1 Mbit", "1 KiB", "rr", "ewma"]),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["count", "a", "choices", "fraction"]), below, max_size=3)
    ),
    max_leaves=5,
)


def place_of(content: Any, path: tuple[str | int, ...]) -> Any:
    """Return the mapping or the list that has the value at a path."""
    return functools.reduce(operator.getitem, path[:-1], content)


@RELAXED
@given(st.sampled_from(PATHS), VALUES)
def test_any_value_in_any_place(checkout: Path, path: tuple[str | int, ...], value: object) -> None:
    content = yaml.safe_load(FULL)
    place_of(content, path)[path[-1]] = value
    check(yaml.safe_dump(content, allow_unicode=True), checkout)


# The author of the file chooses the keys few, many and web, so any key is valid there.
@pytest.mark.parametrize(
    "path", [p for p in PATHS if isinstance(p[-1], str) and p[-1] not in ("few", "many", "web")]
)
def test_a_misspelt_key_is_refused(checkout: Path, path: tuple[str | int, ...]) -> None:
    content = yaml.safe_load(FULL)
    place = place_of(content, path)
    place[f"{path[-1]}_x"] = place.pop(path[-1])
    check(yaml.safe_dump(content), checkout)
    with pytest.raises(UserError, match="_x"):
        load("foo", root=checkout)
