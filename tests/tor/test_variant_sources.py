"""Builds of variants that have their own source, and errors in these sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tor_repository import git

from onionlab.errors import UserError
from onionlab.programs.building import file_sha256
from onionlab.programs.git import unpack_commit
from onionlab.programs.tor.build import BuiltTor, ensure_builds, ensure_variants
from onionlab.programs.tor.tor_source import TorSource
from onionlab.programs.tor.variants import TorBuild, load_registry

from .conftest import CHANGE_GREETING, FILES, MAIN, VARIANTS, write_checkout, write_files
from .test_build import compiled, read_greeting

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with three branches.

    `main` says hello, `other` says bye, and `broken` does not compile.
    """
    path = tmp_path / "tor"
    write_files(path, FILES | {".gitignore": "*.o\n"})
    git(path, "init", "-qb", "main")
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")
    git(path, "tag", "tor-0.4.9.99")
    for branch, old, new in (("other", "hello", "bye"), ("broken", "int\nmain", "int\nmain(")):
        git(path, "switch", "-qc", branch, "main")
        (path / "src/app/main.c").write_text(MAIN.replace(old, new))
        git(path, "commit", "-qam", branch)
    git(path, "switch", "-q", "main")
    return path


def build(root: Path, repository: Path, *refs: str, series: str | None = None) -> list[BuiltTor]:
    wanted = {
        TorBuild(series, TorSource(git=str(repository), ref=ref)): [f"of-{ref}"] for ref in refs
    }
    builds = ensure_builds(root, wanted)
    return [builds[one] for one in wanted]


def left(root: Path) -> set[str]:
    """Return the names of finished builds and of work folders that still exist."""
    tor = root / "build/tor"
    return {one.name for one in (*tor.glob("store/*"), *tor.glob(".work-*"))}


def test_commits_are_built_side_by_side_also_with_a_series(
    checkout: Path, repository: Path
) -> None:
    main, other = build(checkout, repository, "main", "other")
    assert (read_greeting(main), read_greeting(other)) == ("hello", "bye")
    commit = git(repository, "rev-parse", "main")
    assert main.path == checkout / f"build/tor/stock-{commit[:12]}/bin/tor-stock-{commit[:12]}"
    assert main.source["tor"] == {"kind": "git", "commit": commit, "version": "0.4.9.99"}
    assert len(main.path.name) == len(other.path.name)
    (patched,) = build(checkout, repository, "main", series="greeting")
    assert read_greeting(patched) == "good morning"
    assert patched.path.name.startswith("tor-greeting-")


def test_a_commit_is_the_source_and_not_its_name(
    checkout: Path, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (main,) = build(checkout, repository, "main")
    caplog.clear()
    for name in ("tor-0.4.9.99", git(repository, "rev-parse", "main"), "HEAD"):
        assert build(checkout, repository, name) == [main]
    bare = repository.with_name("bare")
    git(repository, "clone", "-q", "--bare", ".", str(bare))
    assert build(checkout, bare, "main") == [main]
    assert compiled(caplog) == []


@pytest.mark.parametrize("harm", ["edited", "untracked"])
def test_uncommitted_changes_of_the_checked_out_branch_are_built_and_marked(
    checkout: Path, repository: Path, harm: str
) -> None:
    commit = git(repository, "rev-parse", "main")
    if harm == "edited":
        (repository / "src/app/main.c").write_text(MAIN.replace("hello", "draft"))
    else:
        (repository / "new.c").write_text("")
    (repository / "stale.o").write_text("")
    changed, clean = build(checkout, repository, "main", "tor-0.4.9.99")
    assert read_greeting(changed) == ("draft" if harm == "edited" else "hello")
    assert read_greeting(clean) == "hello"
    facts = dict(changed.source["tor"])
    assert facts.pop("changed") not in (commit, None)
    assert facts == clean.source["tor"]
    assert changed.path != clean.path


@pytest.mark.parametrize(
    ("ref", "series", "expected"),
    [
        ("othr", None, 'has no branch, tag or commit "othr"; did you mean "other"?'),
        ("-x", None, 'has no branch, tag or commit "-x"'),
        ("^main", None, 'has no branch, tag or commit "^main"; did you mean "main"?'),
        (
            "other",
            "greeting",
            "greeting/0001-greeting.patch does not apply to tor at {commit}: "
            "patching file src/app/main.c; Hunk #1 FAILED at 1.",
        ),
        ("broken", None, "Tor: compile failed (exit status 2)"),
    ],
)
def test_an_error_names_the_variant_and_leaves_nothing(
    new_checkout: Path, repository: Path, ref: str, series: str | None, expected: str
) -> None:
    commit = git(repository, "rev-parse", "other")[:12]
    with pytest.raises(UserError) as caught:
        build(new_checkout, repository, ref, series=series)
    assert caught.value.message.startswith(f"variant of-{ref}: ")
    assert expected.format(commit=commit) in caught.value.message
    assert ref != "broken" or "main.c:7" in (caught.value.hint or "")
    assert left(new_checkout) == set()


def test_all_sources_and_patches_are_checked_before_anything_is_compiled(
    new_checkout: Path, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError, match="does not apply"):
        build(new_checkout, repository, "main", "other", series="greeting")
    git(repository, "commit", "-q", "--allow-empty", "-m", "empty")
    git(repository, "rm", "-q", "configure.ac")
    git(repository, "commit", "-qm", "no Tor")
    with pytest.raises(UserError) as caught:
        build(new_checkout, repository, "other", "main")
    assert f" of {repository} is not Tor's source" in caught.value.message
    assert compiled(caplog) == []


def test_a_relative_path_counts_from_the_file() -> None:
    home = Path.home()
    for path, expected in (("a", "/own/a"), ("/b", "/b"), ("~/c", f"{home}/c"), ("~nobody-x", "")):
        seen = TorSource(git=path, ref="main").seen_from(Path("/own"))
        assert seen.git == (expected or f"/own/{path}")


@pytest.mark.parametrize("place", ["missing", "folder", "subfolder"])
def test_a_place_without_a_repository_is_named(
    new_checkout: Path, repository: Path, tmp_path: Path, place: str
) -> None:
    """A folder inside a repository, such as an unpacked release, is not itself a repository."""
    path = {"missing": tmp_path / "no", "folder": tmp_path, "subfolder": repository / "src"}[place]
    with pytest.raises(UserError) as caught:
        build(new_checkout, path, "main")
    assert str(path) in caught.value.message
    assert "not a git repository" in caught.value.message or place == "missing"


def test_a_repository_that_lacks_a_part_of_the_commit_is_an_error(
    new_checkout: Path, repository: Path
) -> None:
    blob = git(repository, "rev-parse", "main:src/tools/gencert.c")
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    message = rf"lacks a part of commit .*: src/tools/gencert.c .*{blob}"
    with pytest.raises(UserError, match=message):
        build(new_checkout, repository, "main")
    assert left(new_checkout) == set()


def test_files_are_as_in_the_commit(repository: Path, tmp_path: Path) -> None:
    """Git attributes, git settings and links out of the tree change or remove no file."""
    (repository / ".gitattributes").write_text("a export-ignore\nb export-subst\nc eol=crlf\n")
    contents = {"a": b"a\n", "b": b"$Format:%H$\n", "c": b"1\n2\n", "src/d e\n\xc3\xa9": b""}
    write_files(repository, {name: text.decode() for name, text in contents.items()})
    (repository / "b").chmod(0o755)
    (repository / "link").symlink_to("/nonexistent/place")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "attributes")
    git(repository, "config", "core.eol", "crlf")
    git(repository, "config", "core.attributesFile", str(tmp_path / "own"))
    (tmp_path / "own").write_text("*.c text\nconfigure.ac export-ignore\n")
    unpacked = tmp_path / "unpacked"
    unpack_commit(repository, "main", unpacked, lambda path: True)
    assert {name: (unpacked / name).read_bytes() for name in contents} == contents
    assert (unpacked / "link").readlink() == Path("/nonexistent/place")
    assert (unpacked / "src/app/main.c").read_text() == MAIN
    names = [path.relative_to(unpacked) for path in unpacked.rglob("*") if not path.is_dir()]
    assert len(names) == len(git(repository, "ls-files", "-z").split("\0")) - 1
    modes = {(unpacked / name).stat().st_mode & 0o777 for name in ("a", "c", "configure.ac")}
    assert (modes, (unpacked / "b").stat().st_mode & 0o777) == ({0o644}, 0o755)
    assert len({(unpacked / name).stat().st_mtime for name in contents}) == 1


def own_file(folder: Path, *entries: str, series: str = "") -> Path:
    """Write a file of variants and return its path.

    entries: each has a variant's name in the first line, and the variant's keys in further lines.
    series: text before `variants:`.
    """
    text = f"{series}variants:\n"
    for marker, entry in zip("osD", entries, strict=False):
        name, *lines = entry.splitlines()
        lines += [f"{key}: {name}" for key in ("label", "description")]
        lines += ['color: "#000000"', 'linestyle: "-"', f"marker: {marker}"]
        text += f"  {name}:\n" + "".join(f"    {line}\n" for line in lines)
    write_files(folder, {"own.yaml": text})
    return folder / "own.yaml"


def test_a_file_of_ones_own_adds_variants_and_series(
    checkout: Path,
    repository: Path,
    tor_source: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_files(tmp_path / "own/evening", {"1.patch": CHANGE_GREETING.replace("morning", "eve")})
    series = VARIANTS[: VARIANTS.index("variants:")].replace("greeting:", "evening:")
    source = f"source: {{git: ../{repository.name}, ref: other}}"
    night = 'night\nseries: evening\nproof: "In use: night."'
    path = own_file(tmp_path / "own", f"mine\n{source}", night, series=series)
    monkeypatch.setenv("VARIANTS_FILE", str(path))
    assert list(load_registry(checkout).variants) == ["stock", "morning", "mine", "night"]
    built = ensure_variants(checkout, ["stock", "mine", "night"])
    assert [read_greeting(one) for one in built.values()] == ["hello", "bye", "good eve"]
    assert built["stock"].path == checkout / "build/tor/stock/bin/tor-stock"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("mine\nsource: {git: ../tor}", "expected {debian: VERSION}, {tarball: PATH, sha256: "),
        ("mine\nsource: {debian: 0.4.9.11, ref: x}", "mine.source: expected {debian: VERSION}"),
        ("mine\nsource: {}", "variants.mine.source: expected {debian: VERSION}"),
        ("mine\nsource: {tarball: x, sha256: abc}", "source.sha256: expected text that matches"),
        ("mine\nsource: {git: ../tor, branch: x}", "source.branch: unknown key"),
        ("stock", "variants.stock: tor-patches/variants.yaml has one of this name"),
        ("mine\nseries: greeting", "mine.proof: missing: a build with a series has to log"),
    ],
)
def test_a_wrong_file_of_ones_own_is_named_to_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, message: str
) -> None:
    root = write_checkout(tmp_path / "root")
    monkeypatch.setenv("VARIANTS_FILE", str(own_file(tmp_path / "own", entry)))
    with pytest.raises(UserError) as caught:
        load_registry(root)
    assert message in caught.value.message
    monkeypatch.setenv("VARIANTS_FILE", "missing.yaml")
    with pytest.raises(UserError, match=r"^VARIANTS_FILE: .*/missing\.yaml not found"):
        load_registry(root)


def test_a_tarball_is_compared_with_its_hash(
    checkout: Path, tiny_tarball: Path, tmp_path: Path
) -> None:
    def build_tarball(path: Path, sha256: str) -> BuiltTor:
        wanted = TorBuild(None, TorSource(tarball=str(path), sha256=sha256))
        return ensure_builds(checkout, {wanted: ["mine"]})[wanted]

    with pytest.raises(UserError, match=rf"variant mine: .* has SHA-256 .*, not {'0' * 64}"):
        build_tarball(tiny_tarball, "0" * 64)
    for name in ("no.tar.gz", "x" * 300, "."):
        with pytest.raises(UserError, match="does not exist or is not a file"):
            build_tarball(tmp_path / name, "0" * 64)
    sha256 = file_sha256(tiny_tarball)
    built = build_tarball(tiny_tarball, sha256)
    assert built.path.name == f"tor-stock-{sha256[:12]}"
