"""A damaged file loads, or gives an error with its file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onionlab.errors import UserError
from onionlab.experiment import load

from .conftest import LEVELS_AND_FIGURE, VALID

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


def check(text: str | bytes, checkout: Path) -> None:
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    (checkout / "experiments" / "foo.yaml").write_bytes(content)
    try:
        experiment = load("foo", root=checkout)
    except UserError as error:
        lines = error.message.splitlines()
        if len(lines) > 1:
            assert re.fullmatch(r"experiments/foo\.yaml: [0-9]+ things are wrong", lines.pop(0))
        last = content.count(b"\n") + content.count(b"\r") + content.count(b"\x85") + 1
        last += content.count("\u2028".encode()) + content.count("\u2029".encode())
        for line in map(str.strip, lines):
            assert ANY_LINE.fullmatch(line), repr(line)
            assert line.isprintable(), repr(line)
            assert 1 <= int(line.split(":")[1]) <= last, line
    else:
        assert experiment.levels
        try:
            experiment.with_overrides(scale=0.1)
        except UserError as error:
            # At this scale, a small network may have too few relays.
            if not error.message.startswith("foo at SCALE=0.1: "):
                raise


@pytest.fixture
def valid_one(checkout: Path) -> Path:
    check(FULL, checkout)
    load("foo", root=checkout)
    return checkout


@RELAXED
@given(st.integers(0, len(FULL)), st.integers(0, 12), SNIPPETS)
@example(0, 0, "\ufeff")
@example(len(FULL), 0, "\x00")
def test_any_edit(valid_one: Path, start: int, length: int, snippet: str) -> None:
    check(FULL[:start] + snippet + FULL[start + length :], valid_one)


def paths(value: object, prefix: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [prefix] if prefix else []
    children: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    for key, child in children:
        found += paths(child, (*prefix, key))
    return found


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


@RELAXED
@given(st.sampled_from(paths(yaml.safe_load(FULL))), VALUES)
def test_any_value_in_any_place(
    valid_one: Path, path: tuple[str | int, ...], value: object
) -> None:
    content = yaml.safe_load(FULL)
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    check(yaml.safe_dump(content, allow_unicode=True), valid_one)


@RELAXED
@given(st.sampled_from([path for path in paths(yaml.safe_load(FULL)) if isinstance(path[-1], str)]))
def test_a_misspelt_key_is_refused(valid_one: Path, path: tuple[str | int, ...]) -> None:
    content = yaml.safe_load(FULL)
    place = content
    for key in path[:-1]:
        place = place[key]
    place[f"{path[-1]}_x"] = place.pop(path[-1])
    text = yaml.safe_dump(content)
    check(text, valid_one)
    if path[-1] in ("few", "many", "web"):
        return  # The author of the file chooses these keys, so any key is valid.
    with pytest.raises(UserError, match="_x"):
        load("foo", root=valid_one)
