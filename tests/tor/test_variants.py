"""The registry of variants and their patches: its values, and the messages for mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.programs.tor.variants import load_registry, load_variants, tor_series

from .conftest import VARIANTS, write_files

HUNK = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+two\n"


def write_registry(root: Path, text: str) -> Path:
    write_files(root / "tor-patches", {"variants.yaml": text, "greeting/0001.patch": HUNK})
    return root


def test_a_variant_has_the_values_of_its_file(tmp_path: Path) -> None:
    variants = load_variants(write_registry(tmp_path, VARIANTS))
    assert list(variants) == ["stock", "morning"]
    morning = variants["morning"]
    assert (morning.series, morning.torrc) == ("greeting", {"Greeting": "morning"})
    assert (morning.proof, morning.proof_from) == ("In use: morning.", "every-relay")
    other = VARIANTS.replace("every-relay", "an-exit")
    assert load_variants(write_registry(tmp_path, other))["morning"].proof_from == "an-exit"
    assert (morning.label, morning.color) == ("morning", "#4477AA")
    assert (morning.marker, morning.linestyle) == ("s", "--")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    label: morning\n", "", "yaml:16: variants.morning.label: missing: name in figures"),
        ("    label: morning", "    label: ''", 'morning.label: expected text, got ""'),
        ("    series: gre", "    client: x\n    series: gre", "morning.client: expected arti or"),
        ("#4477AA", "blue", "variants.morning.color: expected text that matches"),
        ('linestyle: "--"', 'linestyle: "~"', "linestyle: expected one of -, --, -., :"),
        ("    series: greeting", "    series: greting", "morning.series: no series"),
        ("In use: morning.", "Using: morning.", "morning.proof: it does not begin with"),
        ("Greeting: morning", "Greeting: true", "Tor's switches are 0 and 1"),
        ("Greeting: morning", '"Gr eeting": x', "expected text that matches"),
        ("torrc: {}", "torrc: []", "variants.stock.torrc: expected a mapping (name: value)"),
        ("  morning:\n", "  Morning:\n", "expected text that matches"),
        ("  greeting:\n", "  stock:\n", "the build without patches"),
        ("proof_from: every-relay", "proof_from: relays", "expected one of every-relay, an-exit"),
        ("    proof_from: every-relay\n", "", "series.greeting.proof_from: missing"),
        ("    proof: null", "    proof: 'In use: x.'", "stock.proof: a variant without a series"),
        ('"#4477AA"\n    marker: s\n    linestyle: "--"', '"#000000"\n    marker: o\n'
         '    linestyle: "-"', "variants.morning: looks like stock"),
        ("series:\n  greeting:", "serie:\n  greeting:", "variants.yaml:1: serie: unknown key"),
        ("proof_prefix: ", "proof_prefix: [", "variants.yaml:5: broken YAML"),
    ],
)  # fmt: skip
def test_a_wrong_registry_is_named_to_the_key(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in VARIANTS
    head, _, tail = VARIANTS.rpartition(old)
    with pytest.raises(UserError) as caught:
        load_registry(write_registry(tmp_path, head + new + tail))
    assert message in caught.value.message


@pytest.mark.parametrize("text", ["", "[]", "variants: {}\nseries: {}"])
def test_a_registry_without_variants_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"variants\.yaml"):
        load_registry(write_registry(tmp_path, text))


def test_patches_apply_in_the_order_of_the_series_file(tmp_path: Path) -> None:
    files = {"b.patch": HUNK, "a.patch": f"second\n{HUNK}", "README": ""}
    write_files(tmp_path / "tor-patches/one", {**files, "series": "# x\nb.patch\na.patch\n"})
    patches = tor_series(tmp_path, "one").patches
    assert [patch.path.name for patch in patches] == ["b.patch", "a.patch"]
    assert patches[0].content == HUNK.encode()
    (tmp_path / "tor-patches/one/series").unlink()
    patches = tor_series(tmp_path, "one").patches
    assert [patch.path.name for patch in patches] == ["a.patch", "b.patch"]


def test_changes_of_tests_are_left_out_of_builds(tmp_path: Path) -> None:
    def change(name: str) -> str:
        return f"diff --git a/{name} b/{name}\n" + HUNK.replace("/x", f"/{name}")

    code, tests = change("src/app/main.c"), change("src/test/test.c") + change("src/test/new.c")
    files = {"1.patch": f"Why.\n{code}", "2.patch": tests, "3.patch": tests + code, "4.patch": HUNK}
    write_files(tmp_path / "tor-patches/one", files)
    patches = tor_series(tmp_path, "one").patches
    assert [(one.path.name, one.content.decode()) for one in patches] == [
        ("1.patch", files["1.patch"]),
        ("3.patch", code),
        ("4.patch", HUNK),
    ]
    whole = tor_series(tmp_path, "one", tests=True).patches
    assert [one.content.decode() for one in whole] == list(files.values())


@pytest.mark.parametrize("text", ["", "A message without a change.\n", "--- a/x\n+++ b/x\n"])
def test_a_patch_without_a_hunk_is_named(tmp_path: Path, text: str) -> None:
    write_files(tmp_path / "tor-patches/one", {"a.patch": HUNK, "b.patch": text})
    with pytest.raises(UserError, match=r"one/b\.patch has no hunk"):
        tor_series(tmp_path, "one")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("a.patch\n", "leaves out a patch: b.patch"),
        ("a.patch\nb.patch\nc.patch\n", "names a missing patch: c.patch"),
        ("a.patch\nb.patch\na.patch\n", "names a patch twice: a.patch"),
    ],
)
def test_a_wrong_order_is_named(tmp_path: Path, order: str, message: str) -> None:
    write_files(tmp_path / "tor-patches/one", {"b.patch": "", "a.patch": "", "series": order})
    with pytest.raises(UserError, match=message):
        tor_series(tmp_path, "one")
