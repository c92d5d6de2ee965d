"""The build of the kernel: its inputs and errors, and that it is atomic."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from shell_scripts import write_script
from started_builds import start_build

from onionlab.engines.uml import bootcheck, kernel
from onionlab.engines.uml.kernel import BuiltKernel, ensure_kernel, find_kernel
from onionlab.engines.uml.kernel_tree import load_patches
from onionlab.errors import UserError

from .conftest import FILES, FRAGMENT, KERNEL, PATCH, tarball_of, write_checkout

REPOSITORY = Path(__file__).resolve().parents[2]


def build(root: Path, source: Path) -> BuiltKernel:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LINUX_SOURCE", str(source))
        return ensure_kernel(root)


def test_a_kernel_is_patched_configured_and_built(
    checkout: Path, linux_tarball: Path, caplog: pytest.LogCaptureFixture
) -> None:
    built = build(checkout, linux_tarball)
    assert built.version == "6.12.99"
    assert built.patches == ("0001-two",)
    content = built.path.read_text()
    assert "# 2\n" in content
    assert "# CONFIG_NET=y\n" in content
    assert "OLDER" not in content
    assert "NEWER" not in content
    assert os.access(built.path, os.X_OK)
    assert (checkout / "build/uml/linux").resolve() == built.path
    assert find_kernel(checkout) == built
    assert {path.name for path in built.path.parent.iterdir()} == {"built.json", "config", "linux"}
    assert not list((checkout / "build/uml").glob(".work-*"))
    assert "lacks the patch" in built.ptrace_because
    # A second call reuses the kernel.
    inode = built.path.stat().st_ino
    caplog.clear()
    assert build(checkout, linux_tarball) == built
    assert (caplog.messages, built.path.stat().st_ino) == ([], inode)


@pytest.mark.parametrize(
    ("does", "because"),
    [
        (":", ""),
        ('echo "The kernel takes ptrace: the host has none"', "the host has none"),
        ('case "$*" in *onionlab.inprocess=on*) exit 1;; esac', "does not boot"),
    ],
)
def test_the_first_boot_determines_whether_ptrace_is_needed(
    checkout: Path, tmp_path: Path, does: str, because: str, caplog: pytest.LogCaptureFixture
) -> None:
    rename_patch(checkout, kernel.IN_PROCESSES_PATCH)
    kernel_sh = KERNEL.replace("#!/bin/sh\n", f"#!/bin/sh\n{does}\n")
    source = tarball_of(FILES | {"kernel.sh": kernel_sh}, tmp_path / "linux.tar.xz")
    built = build(checkout, source)
    assert because in built.ptrace_because
    assert bool(built.ptrace_because) == bool(because)
    assert any("uses ptrace" in line for line in caplog.messages) == bool(because)
    assert find_kernel(checkout) == built


def test_the_same_inputs_give_the_same_bytes_in_another_checkout(
    checkout: Path, linux_tarball: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(checkout, linux_tarball)
    for name in ("rustc", "pahole", "bindgen"):
        write_script(tmp_path / "tools" / name, f"echo {name} 1.2.3\n")
    monkeypatch.setenv("PATH", str(tmp_path / "tools"), prepend=os.pathsep)
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("HOME", str(tmp_path / "another home"))
    umask = os.umask(0o077)
    try:
        other = build(write_checkout(tmp_path / "somewhere" / "else"), linux_tarball)
    finally:
        os.umask(umask)
    assert other.sha256 == first.sha256


@pytest.mark.parametrize("what", ["fragment", "patch", "source"])
def test_a_changed_input_gives_another_kernel(
    checkout: Path, linux_tarball: Path, tmp_path: Path, what: str
) -> None:
    first = build(checkout, linux_tarball)
    if what == "fragment":
        (checkout / "configs/uml/kernel.config").write_text(FRAGMENT + "CONFIG_INET=y\n")
    elif what == "patch":
        (checkout / "configs/uml/patches/0001-two.patch").write_text(PATCH.replace("+2", "+II"))
    else:
        changed = FILES | {"kernel.sh": KERNEL + "# changed\n"}
        linux_tarball = tarball_of(changed, tmp_path / "other.tar.xz")
    second = build(checkout, linux_tarball)
    assert second.path != first.path
    assert second.sha256 != first.sha256
    assert first.path.exists()
    assert find_kernel(checkout) == second


@pytest.mark.parametrize("harmed", ["linux", "calls.so", "built.json"])
def test_a_damaged_kernel_is_rebuilt(
    checkout: Path, linux_tarball: Path, harmed: str, caplog: pytest.LogCaptureFixture
) -> None:
    rename_patch(checkout, kernel.CALLS_PATCH)
    built = build(checkout, linux_tarball)
    (built.path.parent / harmed).write_text("")
    assert find_kernel(checkout) is None
    assert build(checkout, linux_tarball) == built
    assert any("damaged" in line for line in caplog.messages)


def rename_patch(checkout: Path, name: str) -> None:
    folder = checkout / "configs/uml/patches"
    (folder / "0001-two.patch").rename(folder / f"{name}.patch")


def test_the_library_for_calls_is_built_with_its_patch(
    checkout: Path, linux_tarball: Path, tmp_path: Path
) -> None:
    assert build(checkout, linux_tarball).calls is None
    rename_patch(checkout, kernel.CALLS_PATCH)
    built = build(checkout, linux_tarball)
    assert built.calls is not None
    assert built.calls.parent == built.path.parent
    symbols = subprocess.run(["nm", "-D", built.calls], capture_output=True, text=True, check=True)
    assert " calls\n" in symbols.stdout
    other = write_checkout(tmp_path / "somewhere" / "else")
    rename_patch(other, kernel.CALLS_PATCH)
    assert build(other, linux_tarball).calls_sha256 == built.calls_sha256
    (other / "configs/uml/calls.c").write_text("int others;\n")
    assert build(other, linux_tarball).calls_sha256 != built.calls_sha256


def test_the_error_names_an_option_that_is_not_accepted(
    checkout: Path, linux_tarball: Path
) -> None:
    fragment = checkout / "configs/uml/kernel.config"
    fragment.write_text(FRAGMENT + "CONFIG_NOT_IN_THIS_VERSION=y\n")
    with pytest.raises(UserError, match=r"6\.12 does not accept.*: CONFIG_NOT_IN_THIS_VERSION=y\n"):
        build(checkout, linux_tarball)
    assert not list((checkout / "build/uml").glob("store/*"))


def test_a_failed_compile_shows_the_end_of_the_log(checkout: Path, tmp_path: Path) -> None:
    bad = FILES | {"file.c": FILES["file.c"].replace("good", "bad")}
    patch = checkout / "configs/uml/patches/0001-two.patch"
    patch.write_text(PATCH.replace("good", "bad"))
    with pytest.raises(UserError, match="compile failed") as caught:
        build(checkout, tarball_of(bad, tmp_path / "bad.tar.xz"))
    hint = caught.value.hint or ""
    assert "file.c:1: error: not good" in hint
    assert str(checkout / "build/uml/logs/kernel.log") in hint


def test_a_required_patch_that_does_not_apply_is_an_error(
    tmp_path: Path, linux_tarball: Path
) -> None:
    """The message names the first hunk that does not apply, even if later hunks apply."""
    later = PATCH[PATCH.index("---") :].replace("file.c", "arch/um/Kconfig")
    later = later[: later.index("@@")] + "@@ -0,0 +1 @@\n+new\n"
    root = write_checkout(tmp_path / "root", {"0001-two.patch": WRONG_PATCH + later})
    named = r"0001-two\.patch does not apply.*patching file file\.c; Hunk #1 FAILED"
    with pytest.raises(UserError, match=named):
        build(root, linux_tarball)


WRONG_PATCH = PATCH.replace("-two", "-zwei")
OTHER_CONTEXT = PATCH.replace(" good\n one\n", " bad\n one\n")


@pytest.mark.parametrize(
    ("patches", "applied", "note"),
    [
        ({"0001-two.patch": OTHER_CONTEXT}, "0001-two", "0001-two applies to linux-source-6.12"),
        (
            {"0001-one.patch": f"Onionlab: optional\n\n{WRONG_PATCH}", "0002-two.patch": PATCH},
            "0002-two",
            "0001-one does not apply to this version",
        ),
        ({"0001-two.patch": WRONG_PATCH, "0001-two.6.12.patch": PATCH}, "0001-two", ""),
    ],
    ids=["with fuzz", "optional", "variant"],
)
def test_which_patches_apply(
    tmp_path: Path,
    linux_tarball: Path,
    patches: dict[str, str],
    applied: str,
    note: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    built = build(write_checkout(tmp_path / "root", patches), linux_tarball)
    assert built.patches == (applied,)
    notes = [line for line in caplog.messages if "applies to" in line or "not apply" in line]
    assert [note in line for line in notes] == ([True] if note else [])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho 'Kernel panic - not syncing'\n", "does not boot"),
        (KERNEL.replace("1000.0", "0.1"), "does not keep simulated time"),
        (KERNEL.replace("946684800.5", "1700000000"), "does not keep simulated time"),
        ("#!/bin/sh\nsleep 60\n", "has not ended after 1 s"),
    ],
)
def test_a_kernel_that_does_not_boot_is_rejected(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    monkeypatch.setattr(bootcheck, "TIMEOUT_S", 1.0)
    source = tarball_of(FILES | {"kernel.sh": script}, tmp_path / "bad.tar.xz")
    with pytest.raises(UserError, match=message) as caught:
        build(checkout, source)
    hint = caught.value.hint or ""
    assert str(checkout / "build/uml/logs/boot.log") in hint
    assert ("panic" in script) == ("Kernel panic - not syncing" in hint)
    assert not list((checkout / "build/uml").glob("store/*"))


def test_the_error_names_missing_programs(
    checkout: Path, linux_tarball: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="missing: bc bison flex") as caught:
        build(checkout, linux_tarball)
    assert "make setup" in (caught.value.hint or "")


def test_setup_installs_the_programs_of_the_build() -> None:
    listed = (REPOSITORY / "configs/apt-packages.txt").read_text().split()
    # gcc depends on binutils, which therefore need not be listed.
    assert set(kernel.BUILD_PROGRAMS.values()) - {"binutils"} <= set(listed)


def test_other_processors_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UserError, match="only on x86_64, but this machine is aarch64"):
        kernel.check_machine()


def test_too_little_disk_space_is_an_error_before_unpacking(
    checkout: Path, linux_tarball: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "BUILD_DISK_BYTES", 2**60)
    with pytest.raises(UserError, match=r"but .* GiB are free"):
        build(checkout, linux_tarball)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_build_leaves_no_incomplete_result(
    checkout: Path, tmp_path: Path, how: signal.Signals
) -> None:
    waits = FILES["Makefile"].replace("linux:\n", "linux:\n\t@sleep 30\n")
    source = tarball_of(FILES | {"Makefile": waits}, tmp_path / "slow.tar.xz")
    call = "onionlab.engines.uml.kernel:ensure_kernel(root)"
    process = start_build(call, checkout, until="configure:", LINUX_SOURCE=str(source))
    os.killpg(process.pid, how)
    process.communicate()
    assert not list((checkout / "build/uml").glob("store/*"))
    assert not (checkout / "build/uml/linux").exists()
    assert build(checkout, tarball_of(FILES, tmp_path / "fast.tar.xz")).version == "6.12.99"
    assert not list((checkout / "build/uml").glob(".work-*"))


def test_the_shipped_patches() -> None:
    patches = load_patches(REPOSITORY / "configs/uml/patches")
    assert [patch.name for patch in patches if patch.required] == [
        *("0001-seeded-random-numbers", "0002-free-steps", "0005-timer-frequency")
    ]
    assert {kernel.IN_PROCESSES_PATCH, kernel.CALLS_PATCH} <= {patch.name for patch in patches}
    for patch in patches:
        for variant in patch.variants:
            assert b"\nLicense: GPL-2.0" in variant.content


def test_finding_a_kernel_removes_nothing(checkout: Path) -> None:
    # While another process builds a kernel, the link build/uml/linux is missing, or leads to an
    # incomplete kernel. The files of that build must stay.
    work = checkout / "build/uml/.work-1"
    work.mkdir(parents=True)
    assert find_kernel(checkout) is None
    assert work.is_dir()
    store = checkout / "build/uml/store/abc"
    store.mkdir(parents=True)
    (checkout / "build/uml/linux").symlink_to("store/abc/linux")
    assert find_kernel(checkout) is None
    assert store.is_dir()
