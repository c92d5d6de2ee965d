"""The build of the BitTorrent peers, with a tiny library that `make` creates with `cat`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.programs.libtorrent.build import ensure_peers
from onionlab.programs.libtorrent.variants import load_peer_variants

VERSION = (
    "#define LIBTORRENT_VERSION_MAJOR 2\n#define LIBTORRENT_VERSION_MINOR 0\n"
    "#define LIBTORRENT_VERSION_TINY 99\n"
)
BUILD = "library:\n\tcat rule > libtorrent.a\nlibtorrent-peer:\n\tcat rule peer/peer.cpp > $@\n"
LOOK = 'label: a, marker: o, linestyle: "-"'
VARIANTS = f"""\
variants:
  slow-start: {{description: a, color: "#000000", {LOOK}, series: [], rule: slow-start}}
  rate-only: {{description: b, color: "#ffffff", {LOOK}, series: [rate-only], rule: rate-only}}
"""


def patch(old: str, new: str) -> str:
    return f"--- a/rule\n+++ b/rule\n@@ -1 +1 @@\n-{old}\n+{new}\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    files = {
        "libtorrent-patches/variants.yaml": VARIANTS,
        "libtorrent-patches/build.mk": BUILD,
        "libtorrent-patches/peer/peer.cpp": "the peer\n",
        "libtorrent-patches/observer/0001-a.patch": patch("released", "observed"),
        "libtorrent-patches/rate-only/0001-b.patch": patch("observed", "rate only"),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    tree = tmp_path / "libtorrent-2.0.99"
    (tree / "include/libtorrent").mkdir(parents=True)
    (tree / "include/libtorrent/version.hpp").write_text(VERSION)
    (tree / "rule").write_text("released\n")
    tarball = tmp_path / "source.tar.gz"
    subprocess.run(["tar", "-czf", tarball, "-C", tmp_path, tree.name], check=True)
    monkeypatch.setenv("LIBTORRENT_SOURCE", str(tarball))
    return root


def build(root: Path, *names: str) -> dict[str, str]:
    builds = ensure_peers(root, names or ("slow-start", "rate-only"), jobs=1)
    return {name: built.path.read_text() for name, built in builds.items()}


def test_each_variant_has_the_observer_and_its_own_patches_and_is_built_once(
    checkout: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contents = build(checkout)
    assert contents == {"slow-start": "observed\nthe peer\n", "rate-only": "rate only\nthe peer\n"}
    caplog.clear()
    assert build(checkout) == contents
    assert caplog.messages == []


def test_a_change_of_ours_builds_the_peer_again_but_not_the_library(
    checkout: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build(checkout)
    (checkout / "libtorrent-patches/peer/peer.cpp").write_text("another peer\n")
    caplog.clear()
    contents = build(checkout, "slow-start")
    assert contents == {"slow-start": "observed\nanother peer\n"}
    assert not any("building the base" in line for line in caplog.messages)


def test_a_build_records_all_its_inputs(checkout: Path) -> None:
    built = ensure_peers(checkout, ["rate-only"], jobs=1)["rate-only"]
    assert built.version == "2.0.99"
    assert [one["name"] for one in built.source["patches"]] == ["0001-a.patch", "0001-b.patch"]
    assert set(built.source["files"]) == {"build.mk", "peer/peer.cpp"}
    assert built.source["toolchain"]["compiler"].startswith("g++")


def test_a_patch_that_does_not_fit_is_named(
    checkout: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = checkout / "libtorrent-patches/rate-only/0001-b.patch"
    wrong.write_text(patch("something else", "rate only"))
    with pytest.raises(UserError, match=r"rate-only/0001-b\.patch does not apply") as caught:
        ensure_peers(checkout, ["slow-start", "rate-only"], jobs=1)
    assert "LIBTORRENT_SOURCE" in (caught.value.hint or "")
    assert not any("compile" in line for line in caplog.messages)


def test_a_source_of_something_else_is_an_error(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("")
    tarball = tmp_path / "other.tar.gz"
    subprocess.run(["tar", "-czf", tarball, "-C", tmp_path, "other"], check=True)
    monkeypatch.setenv("LIBTORRENT_SOURCE", str(tarball))
    with pytest.raises(UserError, match="is not libtorrent's source"):
        build(checkout)
    for name, problem in (("nowhere.tar.gz", "does not exist"), ("other", "is not a tarball")):
        monkeypatch.setenv("LIBTORRENT_SOURCE", str(tmp_path / name))
        with pytest.raises(UserError, match=f"^LIBTORRENT_SOURCE: .* {problem}"):
            build(checkout)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#ffffff", "#000000", "rate-only: looks like slow-start"),
        ("rule: slow-start", "rules: slow-start", "rule"),
        ("series: [rate-only]", "series: [nothing]", "folder libtorrent-patches/nothing not found"),
    ],
)
def test_a_wrong_registry_is_an_error(checkout: Path, old: str, new: str, message: str) -> None:
    assert old in VARIANTS
    (checkout / "libtorrent-patches/variants.yaml").write_text(VARIANTS.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        load_peer_variants(checkout)
