from __future__ import annotations

import pytest

from onionlab.yamlfile import tree
from onionlab.yamlfile.tree import YamlError, merge, plain, read_tree


def test_lists_are_replaced() -> None:
    assert plain(merge(read_tree("a: [1, 2]", "f"), read_tree("a: [3]", "f"))) == {"a": [3]}


@pytest.mark.parametrize("file", ["{%s}", "above: {%s}"])
def test_keys_that_exclude_each_other_are_replaced_together(file: str) -> None:
    base, over, merged = (
        read_tree(file % keys, "f")
        for keys in (
            "one: {a: 1}, other: {a: 1}",
            "one: {b: 2}, other: {b: 2}",
            "one: {b: 2}, other: {a: 1, b: 2}",
        )
    )
    assert plain(merge(base, over, replaced={"one"})) == plain(merged)


def test_scalars_follow_yaml_1_2() -> None:
    text = "a: no\nb: 12:30\nc: 1e3\nd: 0x10\ne: 2000-01-01\nf: true\ng: '5'\nh:\ni: 010\nj: -1.5\n"
    values = ["no", "12:30", 1000.0, "0x10", "2000-01-01", True, "5", None, 10, -1.5]
    assert plain(read_tree(text, "f")) == dict(zip("abcdefghij", values, strict=True))


def test_nodes_know_line_and_path() -> None:
    tree = read_tree("a:\n  b:\n  - x\n  - c: 1\n", "f.yaml")
    found = tree.locate(("a", "b", 1, "c"), "wrong")
    assert str(found) == "f.yaml:4: a.b[2].c: wrong"
    assert str(tree.locate(("a", "z", "y"), "missing")) == "f.yaml:1: a.z.y: missing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f:1: the file is empty"),
        ("- a\n", "f:1: expected a mapping (key: value) at the top of the file"),
        ("a: &x 1\nb: *x\n", "f:2: broken YAML: aliases (*name) are not allowed"),
        ("a: &x [*x]\n", "f:1: broken YAML: aliases (*name) are not allowed"),
        ("<<: {a: 1}\n", "f:1: merge keys (<<) are not allowed"),
        (
            "a: !!python/name:os.system x\n",
            "f:1: a: tags (tag:yaml.org,2002:python/name:os.system)",
        ),
        ("a: 1\n? [x]\n: 2\n", "f:2: a key must be plain text"),
        (
            "a:\n  b: {c: 1\n  d: {e: 2}\n",
            "f:3: broken YAML: did not find expected ',' or '}' (while parsing a flow mapping "
            "that begins on line 2)",
        ),
        ("a: 'x\n", "f:2: broken YAML: found unexpected end of stream"),
        ("a: 1\n---\nb: 2\n", "f:2: broken YAML: but found another document"),
        ("a: 1\nb: \x07\n", "f:2: broken YAML: a character that YAML does not allow (U+0007)"),
        ("a: " + "[" * 100 + "]" * 100, "f:1: broken YAML: nested too deeply"),
        ("a: " + "[" * 100_000, "f:1: broken YAML: nested too deeply"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        read_tree(text, "f")
    (problem,) = map(str, caught.value.problems)
    assert problem.startswith(message)


def test_all_duplicate_keys_are_named() -> None:
    with pytest.raises(YamlError) as caught:
        read_tree("a: 1\nb: 2\na: 3\nb: 4\n", "f")
    assert list(map(str, caught.value.problems)) == [
        "f:3: a: duplicate key, first on line 1",
        "f:4: b: duplicate key, first on line 2",
    ]


def test_a_file_of_too_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_NODES", 10)
    assert plain(read_tree("a: [1, 2, 3, 4, 5, 6, 7, 8]\n", "f1"))
    with pytest.raises(YamlError, match="f2:2: broken YAML: more than 10 values"):
        read_tree("a: [1, 2, 3, 4, 5, 6, 7, 8]\nb: 1\n", "f2")
