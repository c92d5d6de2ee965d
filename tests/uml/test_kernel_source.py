"""Where Linux's source comes from: the package through apt, tarballs, trees; and faults."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from onionlab.engines.uml.kernel_source import choose_package, obtain_source, unpack_source
from onionlab.errors import UserError
from onionlab.programs.building import file_sha256
from onionlab.programs.sources import Source

from .conftest import FILES, tarball_of


def quiet(_: str) -> None:
    pass


def obtain(root: Path, source: Path | None = None, *, update: bool = False) -> Source:
    return obtain_source(root, str(source) if source else None, update=update, say=quiet)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], None),
        (["linux-source-6.1"], None),
        (["linux-source-6.1", "linux-source-6.12"], "linux-source-6.12"),
        (["linux-source-6.8.0", "linux-source-6.12.0"], "linux-source-6.12.0"),
        (["linux-source-6.8.0", "linux-source-6.1"], "linux-source-6.8.0"),
        # What was tested goes before what is new, and the least new before the newest.
        (["linux-source-6.12", "linux-source-99.1"], "linux-source-6.12"),
        (["linux-source-99.1", "linux-source-98.2", "linux-source-98.10"], "linux-source-98.2"),
        (["linux-source-6.12-dbg", "linux-source"], None),
    ],
)
def test_choose_package(names: list[str], chosen: str | None) -> None:
    assert choose_package(names) == chosen


# Tarballs and trees


@pytest.mark.parametrize("mode", ["w:xz", "w:bz2", "w:gz", "w"])
def test_a_tarball_however_it_is_compressed(tmp_path: Path, mode: str) -> None:
    source = obtain(tmp_path, tarball_of(FILES, tmp_path / "linux.tar", mode))
    assert source.kind == "tarball"
    assert unpack_source(source, tmp_path / "tree") == "6.12.99"
    assert (tmp_path / "tree/file.c").read_text() == FILES["file.c"]
    # Kconfig reads what stands in folders that are otherwise of no use.
    assert (tmp_path / "tree/drivers/gpu/Kconfig").exists()
    assert (tmp_path / "tree/arch/arm/Kconfig").exists()
    assert not (tmp_path / "tree/drivers/gpu/unneeded.c").exists()
    assert not (tmp_path / "tree/arch/arm/unneeded.c").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linux.tar", "tree"]


def test_a_tree_holds_the_same(tmp_path: Path, linux_tarball: Path) -> None:
    subprocess.run(["tar", "-xf", linux_tarball, "-C", tmp_path], check=True)
    tree = tmp_path / "linux-source-6.12"
    source = obtain(tmp_path, tree)
    assert (source.kind, source.version) == ("tree", "6.12.99")
    unpack_source(source, tmp_path / "from-tree")
    unpack_source(obtain(tmp_path, linux_tarball), tmp_path / "from-tarball")
    subprocess.run(["diff", "-r", tmp_path / "from-tree", tmp_path / "from-tarball"], check=True)
    (tree / "file.c").write_text("changed")
    assert obtain(tmp_path, tree).sha256 != source.sha256
    (tree / ".config").touch()
    with pytest.raises(UserError, match="configured in place") as caught:
        obtain(tmp_path, tree)
    assert "make mrproper" in (caught.value.hint or "")


@pytest.mark.parametrize("length", [0, 1, 100, 250])
@pytest.mark.parametrize("mode", ["w:xz", "w:gz", "w:bz2"])
def test_a_cut_tarball_is_an_error(tmp_path: Path, length: int, mode: str) -> None:
    whole = tarball_of(FILES, tmp_path / "whole.tar", mode)
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[:length])
    with pytest.raises(UserError, match=r"cut\.tar is (truncated or damaged|not Linux's source)"):
        unpack_source(obtain(tmp_path, cut), tmp_path / "tree")


def test_a_tarball_of_something_else_is_an_error(tmp_path: Path) -> None:
    other = tarball_of({"Makefile": "all:\n"}, tmp_path / "other.tar.xz")
    with pytest.raises(UserError, match="is not Linux's source") as caught:
        unpack_source(obtain(tmp_path, other), tmp_path / "tree")
    assert "LINUX_SOURCE=" in (caught.value.hint or "")


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"LINUX_SOURCE: .*nowhere does not exist"):
        obtain(tmp_path, tmp_path / "nowhere")


# apt, played by scripts that stand on the PATH

APT_GET = """\
#!/bin/sh
# -q -c FILE update|download ...
cp "$3" "$APT_SEEN/apt.conf"
parts=$(sed -n 's/^Dir::Etc::SourceParts "\\(.*\\)";$/\\1/p' "$3")
cat "$parts"/* > "$APT_SEEN/sources"
[ ! -e "$APT_SEEN/offline" ] || { echo "E: Could not resolve 'deb.example.org'"; exit 100; }
if [ "$4" = download ]; then cp "$APT_SEEN/$5"_*.deb .; fi
"""

APT_CACHE = """\
#!/bin/sh
# -q -c FILE pkgnames PREFIX
[ -e "$APT_SEEN/offline" ] || cat "$APT_SEEN/names"
"""

APT_CONFIG = """\
#!/bin/sh
echo "LIST='$APT_SEEN/sources.list'"
echo "PARTS='$APT_SEEN/sources.list.d'"
"""


class Archive:
    """An archive that offers a package of Linux's source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sources.list.d").mkdir(parents=True)
        (folder / "sources.list").write_text("deb http://deb.example.org/debian bookworm main\n")
        self.names("linux-source-6.1", "linux-source-6.12", "linux-source-6.12-extra")

    def names(self, *names: str) -> None:
        (self.folder / "names").write_text("".join(name + "\n" for name in names))

    def package(self, name: str, version: str, *, files: dict[str, str] = FILES) -> Path:
        """Make ``name_version.deb`` as Debian and Ubuntu lay it out; returns its tarball."""
        tree = self.folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
            "Maintainer: Nobody <nobody@example.org>\nDescription: source\n"
        )
        inside = tree / "usr/src" / (name if name.count(".") > 1 else "")
        inside.mkdir(parents=True)
        tarball = tarball_of(files, inside / f"{name}.tar.xz")
        if inside.name == name:
            (tree / f"usr/src/{name}.tar.xz").symlink_to(f"{name}/{name}.tar.xz")
        deb = self.folder / f"{name}_{version}_all.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-b", tree, deb], check=True, capture_output=True
        )
        return tarball


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not here")
    archive = Archive(tmp_path / "archive")
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name, text in {
        "apt-get": APT_GET,
        "apt-cache": APT_CACHE,
        "apt-config": APT_CONFIG,
    }.items():
        (scripts / name).write_text(text)
        (scripts / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{scripts}:{os.environ['PATH']}")
    monkeypatch.setenv("APT_SEEN", str(archive.folder))
    return archive


@pytest.mark.parametrize(
    ("name", "version"),
    [("linux-source-6.12", "6.12.99-1~deb12u1"), ("linux-source-6.12.0", "6.12.0-99.100")],
)
def test_the_package_is_fetched_once(
    tmp_path: Path, archive: Archive, name: str, version: str
) -> None:
    archive.names("linux-source-6.1", name)
    tarball = archive.package(name, version)
    root = tmp_path / "root"
    source = obtain(root)
    assert source.facts == {
        "kind": "debian",
        "package": name,
        "package_version": version,
        "version": version.split("-")[0],
        "file": tarball.name,
        "sha256": file_sha256(tarball),
    }
    assert unpack_source(source, tmp_path / "tree") == "6.12.99"
    # Only packages are asked for, and the state is our own.
    sources = (archive.folder / "sources").read_text()
    assert sources == "deb http://deb.example.org/debian bookworm main\n"
    configuration = (archive.folder / "apt.conf").read_text()
    assert str(root) in configuration
    assert "Only-Source" not in configuration
    # Lists, cache and package have served when the source is there.
    assert sorted(path.name for path in root.iterdir()) == ["logs", "source"]
    assert sorted(path.name for path in (root / "source").iterdir()) == [
        tarball.name,
        "source.json",
    ]
    (archive.folder / "offline").touch()
    assert obtain(root) == source


def test_update_fetches_the_present_package(tmp_path: Path, archive: Archive) -> None:
    archive.package("linux-source-6.12", "6.12.1-1")
    first = obtain(tmp_path / "root")
    (archive.folder / "linux-source-6.12_6.12.1-1_all.deb").unlink()
    archive.package("linux-source-6.12", "6.12.2-1", files=FILES | {"file.c": "new"})
    assert obtain(tmp_path / "root") == first
    second = obtain(tmp_path / "root", update=True)
    assert second.facts["package_version"] == "6.12.2-1"
    assert second.sha256 != first.sha256


@pytest.mark.parametrize("harm", ["cut", "gone", "record"])
def test_a_damaged_cache_is_fetched_again(tmp_path: Path, archive: Archive, harm: str) -> None:
    archive.package("linux-source-6.12", "6.12.1-1")
    first = obtain(tmp_path)
    if harm == "cut":
        first.path.write_bytes(first.path.read_bytes()[:100])
    elif harm == "gone":
        first.path.unlink()
    else:
        (tmp_path / "source/source.json").write_text(json.dumps({"file": 1}))
    assert obtain(tmp_path) == first
    assert file_sha256(first.path) == first.sha256


def test_offline_names_the_way_out(tmp_path: Path, archive: Archive) -> None:
    (archive.folder / "offline").touch()
    with pytest.raises(UserError, match="could not be fetched: Could not resolve") as caught:
        obtain(tmp_path / "root")
    assert "LINUX_SOURCE=/path/to/linux" in (caught.value.hint or "")
    assert not (tmp_path / "root/source").exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "apt offers no linux-source package"),
        (
            ["linux-source-6.1"],
            r"apt offers linux-source-6\.1; 6\.8 is the oldest supported version",
        ),
    ],
)
def test_no_package_that_will_do(
    tmp_path: Path, archive: Archive, names: list[str], message: str
) -> None:
    archive.names(*names)
    with pytest.raises(UserError, match=message) as caught:
        obtain(tmp_path / "root")
    assert "LINUX_SOURCE=" in (caught.value.hint or "")


def test_a_package_without_a_tarball_is_refused(tmp_path: Path, archive: Archive) -> None:
    tarball = archive.package("linux-source-6.12", "6.12.1-1")
    tarball.unlink()
    subprocess.run(
        [
            "dpkg-deb",
            "-b",
            archive.folder / "tree",
            archive.folder / "linux-source-6.12_6.12.1-1_all.deb",
        ],
        check=True,
        capture_output=True,
    )
    with pytest.raises(UserError, match="contains no tarball of Linux"):
        obtain(tmp_path / "root")


def test_without_apt_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="needs apt, and apt-get is missing") as caught:
        obtain(tmp_path / "root")
    assert "LINUX_SOURCE=" in (caught.value.hint or "")
