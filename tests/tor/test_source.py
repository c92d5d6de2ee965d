"""Sources of Tor through a private apt, as tarballs and as trees, and their errors."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from shell_scripts import write_script
from tor_repository import git

from onionlab.errors import UserError
from onionlab.programs import sources
from onionlab.programs.building import file_sha256
from onionlab.programs.sources import Source
from onionlab.programs.tor.build_trees import tor_directory
from onionlab.programs.tor.tor_source import TOR, TorSource, obtain_tor_source

from .conftest import FILES, pack, write_files


def obtain(root: Path, source: Path | None = None, *, update: bool = False) -> Source:
    named = str(source) if source else None
    return sources.obtain_source(TOR, tor_directory(root) / "source", named, update=update)


def unpack_source(source: Source, destination: Path) -> str:
    return sources.unpack_source(TOR, source, destination)


# Local tarballs


def test_a_tarball_is_used_unchanged(tmp_path: Path, tiny_tarball: Path) -> None:
    source = obtain(tmp_path, tiny_tarball)
    assert (source.kind, source.sha256) == ("tarball", file_sha256(tiny_tarball))
    assert unpack_source(source, tmp_path / "tree") == "0.4.9.99"
    assert (tmp_path / "tree/configure.ac").read_text() == FILES["configure.ac"]
    # Make compares time stamps, so unpacked files keep the time stamps of the tarball. This file is
    # therefore older than its folder.
    assert (tmp_path / "tree/configure.ac").stat().st_mtime < (tmp_path / "tree").stat().st_ctime


def test_a_tarball_that_is_truncated_after_its_version_is_an_error(tmp_path: Path) -> None:
    tree = tmp_path / "tor"
    write_files(tree, {"configure.ac": FILES["configure.ac"]})
    (tree / "data").write_bytes(os.urandom(100_000))
    whole = tmp_path / "whole.tar.gz"
    names = ["tor/configure.ac", "tor/data"]
    subprocess.run(["tar", "-czf", whole, "-C", tmp_path, *names], check=True)
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole.read_bytes()[:50_000])
    with pytest.raises(UserError, match=r"cut\.tar\.gz is truncated or damaged: .*end-of-stream"):
        unpack_source(obtain(tmp_path, cut), tmp_path / "tree")


def test_a_full_disk_is_not_a_damaged_tarball(tmp_path: Path) -> None:
    """A limit on file sizes imitates a full disk. In both cases, the system's error has no path."""
    tree = tmp_path / "tor"
    write_files(tree, {"configure.ac": FILES["configure.ac"], "data": "0" * 100_000})
    tarball = tmp_path / "tor.tar"
    subprocess.run(["tar", "-cf", tarball, "-C", tmp_path, "tor"], check=True)
    source = obtain(tmp_path, tarball)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            unpack_source(source, tmp_path / "tree")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


# Local trees


@pytest.fixture
def tree(tmp_path: Path, tiny_tree: Path) -> Path:
    shutil.copytree(tiny_tree, tmp_path / "tree")
    return tmp_path / "tree"


def test_a_tree_is_named_by_its_content(tmp_path: Path, tree: Path) -> None:
    one, two = tree, tmp_path / "two"
    shutil.copytree(one, two)
    os.utime(two / "configure.ac", (0, 0))
    assert obtain(tmp_path, one).sha256 == obtain(tmp_path, two).sha256
    names = {obtain(tmp_path, one).sha256}
    with (two / "src/app/main.c").open("a") as stream:
        stream.write("/* changed */\n")
    names.add(obtain(tmp_path, two).sha256)
    (one / "src/test/test_script.sh").chmod(0o644)
    names.add(obtain(tmp_path, one).sha256)
    (one / "configure.ac").rename(one / "configure.in")
    (one / "configure.ac").symlink_to("configure.in")
    names.add(obtain(tmp_path, one).sha256)
    assert len(names) == 4


@pytest.mark.parametrize("harm", ["edited", "added", "removed"])
def test_a_tree_that_changes_before_it_is_copied_is_not_built(
    tmp_path: Path, tree: Path, harm: str
) -> None:
    """A build of the changed tree would be stored, and reused, as a build of the earlier files."""
    source = obtain(tmp_path, tree)
    if harm == "removed":
        (tree / "src/tools/gencert.c").unlink()
    else:
        (tree / ("src/app/main.c" if harm == "edited" else "new.c")).write_text("int x;\n")
    with pytest.raises(UserError, match="has changed since this command started"):
        unpack_source(source, tmp_path / "copy")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_git_tree_gives_its_tracked_files_and_its_commit(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tree, "init", "-q")
    (tree / ".gitignore").write_text("*.o\nconfig.status\n")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "first")
    (tree / "stale.o").write_text("an object of another build")
    (tree / "config.status").write_text("configured in place, but git does not list it")
    (tree / "new.c").write_text("not committed yet")
    source = obtain(tmp_path, tree)
    unpack_source(source, tmp_path / "copy")
    assert not (tmp_path / "copy/stale.o").exists()
    assert not (tmp_path / "copy/.git").exists()
    assert (tmp_path / "copy/new.c").exists()
    # `git describe` ignores new.c, which is untracked, so the commit is not marked as dirty.
    assert len(source.facts["commit"]) >= 7
    # Git sets this variable when it calls a hook. The hook may belong to another repository and
    # call onionlab.
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    assert obtain(tmp_path, tree) == source


def test_the_files_of_git_are_never_a_part_of_a_tree(tmp_path: Path, tree: Path) -> None:
    """If git lists no files, all files outside .git belong to the tree.

    Git lists none if it is not installed, or if the tree belongs to another user.
    """
    source = obtain(tmp_path, tree)
    write_files(tree, {".git/HEAD": "damaged"})
    assert obtain(tmp_path, tree) == source
    unpack_source(source, tmp_path / "copy")
    assert not (tmp_path / "copy/.git").exists()


# Scripts on the PATH replace apt's programs.

APT_GET = """\
# -q -c FILE update|source ...
cp "$3" "$APT_SEEN/apt.conf"
stat -c %a . > "$APT_SEEN/mode"
parts=$(sed -n 's/^Dir::Etc::SourceParts "\\(.*\\)";$/\\1/p' "$3")
cp -rT "$parts" "$APT_SEEN/sources"
echo "$@" >> "$APT_SEEN/calls"
[ ! -e "$APT_SEEN/offline" ] || { echo "E: Could not resolve 'deb.example.org'"; exit 100; }
if [ "$4" = source ]; then cp "$APT_SEEN"/package/* .; fi
"""

APT_CACHE = """\
printf 'Package: tor\\nVersion: %s\\n\\n' 1:0.4.9.100-1 0.4.9.99-1~deb12u1
"""

APT_CONFIG = """\
echo "LIST='$APT_SEEN/sources.list'"
echo "PARTS='$APT_SEEN/sources.list.d'"
"""


class Archive:
    """A Debian archive with one source package, which the scripts above serve."""

    def __init__(self, folder: Path, tarball: Path) -> None:
        self.folder = folder
        self.package = folder / "package"
        self.tarball = self.package / "tor_0.4.9.99.orig.tar.gz"
        self.description = self.package / "tor_0.4.9.99-1~deb12u1.dsc"
        self.package.mkdir(parents=True)
        (folder / "sources.list.d").mkdir()
        (folder / "sources.list").write_text("deb http://deb.example.org/debian bookworm main\n")
        (folder / "sources.list.d/more.sources").write_text(
            "Types: deb\nURIs: http://more.example.org/\nSuites: bookworm\nComponents: main\n"
        )
        shutil.copy(tarball, self.tarball)
        self.describe(file_sha256(self.tarball))

    def describe(self, sha256: str) -> None:
        self.description.write_text(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nFormat: 1.0\nSource: tor\n"
            "Version: 0.4.9.99-1~deb12u1\nChecksums-Sha256:\n"
            f" {sha256} {self.tarball.stat().st_size} {self.tarball.name}\n"
            f" {'0' * 64} 1 tor_0.4.9.99-1~deb12u1.diff.gz\n\n"
            "-----BEGIN PGP SIGNATURE-----\n"
        )


@pytest.fixture
def archive(tmp_path: Path, tiny_tarball: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    archive = Archive(tmp_path / "archive", tiny_tarball)
    scripts = {"apt-get": APT_GET, "apt-cache": APT_CACHE, "apt-config": APT_CONFIG}
    for name, body in scripts.items():
        write_script(tmp_path / "bin" / name, body)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("APT_SEEN", str(archive.folder))
    return archive


def test_debian_source_is_fetched_once(tmp_path: Path, archive: Archive) -> None:
    root = tmp_path / "root"
    source = obtain(root)
    assert source.facts == {
        "kind": "debian",
        "package": "tor",
        "package_version": "0.4.9.99-1~deb12u1",
        "version": "0.4.9.99",
        "file": archive.tarball.name,
        "sha256": file_sha256(archive.tarball),
    }
    assert unpack_source(source, tmp_path / "tree") == "0.4.9.99"
    assert json.loads((root / "build/tor/source/source.json").read_text()) == source.facts
    (archive.folder / "offline").touch()
    assert obtain(root) == source


def test_apt_gets_a_state_of_its_own(tmp_path: Path, archive: Archive) -> None:
    obtain(tmp_path / "root")
    configuration = (archive.folder / "apt.conf").read_text()
    assert "#clear APT::Update;" in configuration
    for key in ("Dir::State::Lists", "Dir::Cache", "Dir::Etc::SourceParts"):
        line = next(line for line in configuration.splitlines() if line.startswith(key))
        assert str(tmp_path / "root/build/tor") in line
    assert 'Dir::Etc::SourceList "/dev/null";' in configuration
    # If root runs apt, apt downloads as the user _apt. This user needs access to apt's working
    # folder.
    assert (archive.folder / "mode").read_text() == "755\n"
    # None of apt's checks is disabled.
    assert "AllowInsecure" not in configuration
    assert "trusted" not in configuration.lower()
    copied = sorted((archive.folder / "sources").iterdir())
    texts = [path.read_text() for path in copied]
    assert texts[0].startswith("deb-src http://deb.example.org/debian bookworm main\n")
    assert texts[1].startswith("Types: deb-src\nURIs: http://more.example.org/")
    # Apt's lists of packages and its cache are removed once the source exists.
    left = {path.name for path in (tmp_path / "root/build/tor").iterdir()}
    assert left == {"logs", "source"}


def test_update_fetches_the_present_version(tmp_path: Path, archive: Archive) -> None:
    root = tmp_path / "root"
    first = obtain(root)
    write_files(tmp_path / "tor-x", FILES | {"ChangeLog": "more"})
    pack(tmp_path / "tor-x", archive.tarball)
    archive.describe(file_sha256(archive.tarball))
    assert obtain(root) == first
    assert obtain(root, update=True).sha256 == file_sha256(archive.tarball) != first.sha256
    assert obtain(root).sha256 == file_sha256(archive.tarball)


def test_a_variant_names_a_version(tmp_path: Path, archive: Archive) -> None:
    def obtain_version(root: Path, version: str) -> Source:
        return obtain_tor_source(tor_directory(root), TorSource(debian=version))

    source = obtain_version(tmp_path, "0.4.9.99")
    assert (source.kind, source.id) == ("debian", file_sha256(archive.tarball)[:12])
    assert source.path.parent == tmp_path / "build/tor/source-0.4.9.99"
    assert "source --download-only tor=0.4.9.99-1~deb12u1" in (archive.folder / "calls").read_text()
    with pytest.raises(UserError) as caught:
        obtain_version(tmp_path, "0.4.9.98")
    assert "no source package of Tor 0.4.9.98; versions there: 0.4.9.100, 0.4.9.99" in str(
        caught.value
    )
    # If the source package that is fetched by default has the requested version, it is used.
    default = obtain(tmp_path / "other")
    (archive.folder / "offline").touch()
    assert obtain_version(tmp_path, "0.4.9.99") == source
    assert obtain_version(tmp_path / "other", "0.4.9.99").path == default.path


@pytest.mark.parametrize("harm", ["cut", "gone", "record"])
def test_a_damaged_cache_is_fetched_again(tmp_path: Path, archive: Archive, harm: str) -> None:
    root = tmp_path / "root"
    first = obtain(root)
    if harm == "cut":
        first.path.write_bytes(first.path.read_bytes()[:100])
    elif harm == "gone":
        first.path.unlink()
    else:
        (root / "build/tor/source/source.json").write_text("{")
    assert obtain(root) == first
    assert file_sha256(first.path) == first.sha256
