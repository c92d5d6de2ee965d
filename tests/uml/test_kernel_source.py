"""Linux's source: the package from apt, tarballs and trees."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from shell_scripts import write_script

from onionlab.engines.uml.kernel_source import LINUX, choose_package, obtain_linux
from onionlab.errors import UserError
from onionlab.programs import sources
from onionlab.programs.building import file_sha256
from onionlab.programs.sources import Source

from .conftest import FILES, tarball_of


def obtain(root: Path, source: Path | None = None) -> Source:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LINUX_SOURCE", str(source or ""))
        return obtain_linux(root)


def unpack_source(source: Source, destination: Path) -> str:
    return sources.unpack_source(LINUX, source, destination)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], None),
        (["linux-source-6.1"], None),
        (["linux-source-6.1", "linux-source-6.12"], "linux-source-6.12"),
        (["linux-source-6.8.0", "linux-source-6.12.0"], "linux-source-6.12.0"),
        (["linux-source-6.8.0", "linux-source-6.1"], "linux-source-6.8.0"),
        # Tested versions are preferred, and then the oldest of the newer ones.
        (["linux-source-6.12", "linux-source-99.1"], "linux-source-6.12"),
        (["linux-source-99.1", "linux-source-98.2", "linux-source-98.10"], "linux-source-98.2"),
        (["linux-source-6.12-dbg", "linux-source"], None),
    ],
)
def test_choose_package(names: list[str], chosen: str | None) -> None:
    assert choose_package("\n".join(names)) == chosen


# Tarballs and trees


@pytest.mark.parametrize("mode", ["w:xz", "w:bz2", "w:gz", "w"])
def test_a_tarball_with_any_compression(tmp_path: Path, mode: str) -> None:
    source = obtain(tmp_path, tarball_of(FILES, tmp_path / "linux.tar", mode))
    assert source.kind == "tarball"
    assert unpack_source(source, tmp_path / "tree") == "6.12.99"
    assert (tmp_path / "tree/file.c").read_text() == FILES["file.c"]
    # Kconfig also reads the Kconfig files in folders that are otherwise not needed.
    assert (tmp_path / "tree/drivers/gpu/Kconfig").exists()
    assert (tmp_path / "tree/arch/arm/Kconfig").exists()
    assert not (tmp_path / "tree/drivers/gpu/unneeded.c").exists()
    assert not (tmp_path / "tree/arch/arm/unneeded.c").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linux.tar", "tree"]


def test_debians_python_has_no_filters(
    tmp_path: Path, linux_tarball: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python 3.11.4 added these three. Debian 12 has Python 3.11.2.
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.delattr(tarfile.TarFile, "extraction_filter", raising=False)
    monkeypatch.delattr(tarfile.TarInfo, "replace", raising=False)
    unpack_source(obtain(tmp_path, linux_tarball), tmp_path / "tree")
    assert (tmp_path / "tree/file.c").read_text() == FILES["file.c"]


def test_a_tree_has_the_same_content(tmp_path: Path, linux_tarball: Path) -> None:
    subprocess.run(["tar", "-xf", linux_tarball, "-C", tmp_path], check=True)
    tree = tmp_path / "linux-source-6.12"
    source = obtain(tmp_path, tree)
    assert (source.kind, source.version) == ("tree", "6.12.99")
    unpack_source(source, tmp_path / "from-tree")
    unpack_source(obtain(tmp_path, linux_tarball), tmp_path / "from-tarball")
    subprocess.run(["diff", "-r", tmp_path / "from-tree", tmp_path / "from-tarball"], check=True)
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


# Scripts on the PATH replace apt.

APT_GET = """\
# -q -c FILE update|download ...
cp "$3" "$APT_SEEN/apt.conf"
[ ! -e "$APT_SEEN/offline" ] || { echo "E: Could not resolve 'deb.example.org'"; exit 100; }
if [ "$4" = download ]; then cp "$APT_SEEN/$5"_*.deb .; fi
"""

APT_CACHE = """\
# -q -c FILE pkgnames PREFIX
[ -e "$APT_SEEN/offline" ] || cat "$APT_SEEN/names"
"""


class Archive:
    """A package archive whose names the replaced apt lists, and whose packages it downloads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def names(self, *names: str) -> None:
        (self.folder / "names").write_text("".join(name + "\n" for name in names))

    def package(self, name: str, version: str) -> Path:
        """Make a package with the layout of Debian or Ubuntu.

        Return the tarball that it contains.
        """
        tree = self.folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
            "Maintainer: Nobody <nobody@example.org>\nDescription: source\n"
        )
        inside = tree / "usr/src" / (name if name.count(".") > 1 else "")
        inside.mkdir(parents=True)
        tarball = tarball_of(FILES, inside / f"{name}.tar.xz")
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
    write_script(tmp_path / "bin/apt-get", APT_GET)
    write_script(tmp_path / "bin/apt-cache", APT_CACHE)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
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
    # apt keeps its state in ``root``, not in the system. The package is a binary package, so apt
    # uses the archives of the system's configuration, and needs no archives of source packages.
    configuration = (archive.folder / "apt.conf").read_text()
    assert str(root) in configuration
    assert "Only-Source" not in configuration
    assert "SourceParts" not in configuration
    # Only the source and the log remain.
    assert {path.name for path in root.iterdir()} == {"logs", "source"}
    assert {path.name for path in (root / "source").iterdir()} == {tarball.name, "source.json"}
    (archive.folder / "offline").touch()
    assert obtain(root) == source


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (None, "could not be fetched: Could not resolve"),
        ([], "apt offers no linux-source package"),
        (["linux-source-6.1"], r"apt offers linux-source-6\.1; 6\.8 is the oldest supported"),
    ],
)
def test_no_suitable_package(
    tmp_path: Path, archive: Archive, names: list[str] | None, message: str
) -> None:
    """Without a suitable package, the error has a hint. If ``names`` is None, apt is offline."""
    if names is None:
        (archive.folder / "offline").touch()
    else:
        archive.names(*names)
    with pytest.raises(UserError, match=message) as caught:
        obtain(tmp_path / "root")
    assert "LINUX_SOURCE=/path/to/linux" in (caught.value.hint or "")
    assert not (tmp_path / "root/source").exists()
