"""Builds of Tor: reuse, rebuilding, errors, and interrupts."""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from started_builds import start_build

from onionlab.errors import UserError
from onionlab.programs import building
from onionlab.programs.apt import PrivateApt
from onionlab.programs.building import BuildFailedError, file_sha256
from onionlab.programs.tor.build import BuiltTor, ensure_series, ensure_variants

from .conftest import ADD_FILE, CHANGE_GREETING, write_checkout

pytestmark = pytest.mark.usefixtures("tor_source")


def read_greeting(built: BuiltTor) -> str:
    return subprocess.run([built.path], capture_output=True, text=True, check=True).stdout.strip()


def compiled(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "compile" in line]


def leftovers(root: Path) -> list[str]:
    return [path.name for path in (root / "build/tor").glob(".*") if path.name != ".lock"]


def test_a_build_is_in_the_documented_place(checkout: Path, tiny_tarball: Path) -> None:
    builds = ensure_variants(checkout, ["stock", "morning"], tor_source=str(tiny_tarball))
    stock, morning = builds["stock"], builds["morning"]
    assert stock.path == checkout / "build/tor/stock/bin/tor-stock"
    assert morning.path == checkout / "build/tor/greeting/bin/tor-greeting"
    assert (stock.series, morning.series) == (None, "greeting")
    assert (read_greeting(stock), read_greeting(morning)) == ("hello", "good morning")
    assert stock.version == morning.version == "0.4.9.99"
    for built in builds.values():
        assert built.sha256 == file_sha256(built.path)
        assert built.path.with_name("tor-gencert").is_file()
    assert morning.source["tor"]["sha256"] == file_sha256(tiny_tarball)
    assert [patch["name"] for patch in morning.source["patches"]] == ["0001-greeting.patch"]
    json.dumps(morning.source)


def test_the_same_inputs_give_the_same_bytes_elsewhere(
    built_checkout: Path, tmp_path: Path
) -> None:
    elsewhere = write_checkout(tmp_path / "a-path-of-another-length")
    here = ensure_series(built_checkout, ["greeting"])
    there = ensure_series(elsewhere, ["greeting"])
    # The two builds started differently: the first one from a compiled Tor, and the second one from
    # a Tor that was only configured.
    assert list(built_checkout.glob("build/tor/base/*/tree"))
    assert not list(elsewhere.glob("build/tor/base/*/tree"))
    assert here["greeting"].sha256 == there["greeting"].sha256


def test_a_checkout_may_lie_at_a_path_that_makefiles_cannot_take(
    built_checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """autoconf rejects spaces and other characters in paths.

    The same Tor is built nevertheless, even if the checkout is on another file system.
    """
    elsewhere = write_checkout(tmp_path / "my dir, müßig & 'so'")
    of_path, there = Path.rename, str(elsewhere)

    def rename(path: Path, target: Path) -> Path:
        if str(target).startswith(there) and not str(path).startswith(there):
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(path), None, str(target))
        return of_path(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    built = ensure_series(elsewhere, [None, "greeting"])
    here = ensure_series(built_checkout, ["greeting"])
    assert read_greeting(built["greeting"]) == "good morning"
    assert built["greeting"].sha256 == here["greeting"].sha256
    assert not leftovers(elsewhere)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(elsewhere))
    with (
        pytest.raises(UserError, match="characters that makefiles do not support"),
        building.building_directory(elsewhere),
    ):
        pass


def test_a_changed_patch_makes_a_new_build_and_keeps_the_old(
    checkout: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = (checkout / "build/tor/greeting").resolve()
    patch = checkout / "tor-patches/greeting/0001-greeting.patch"
    patch.write_text(CHANGE_GREETING.replace("good morning", "good evening"))
    builds = ensure_series(checkout, [None, "greeting"])
    assert read_greeting(builds["greeting"]) == "good evening"
    assert read_greeting(builds[None]) == "hello"
    # A running experiment keeps the executable with which it started.
    assert old != (checkout / "build/tor/greeting").resolve()
    assert (old / "bin/tor-greeting").is_file()
    # Only files that the patch changes are compiled.
    log = (checkout / "build/tor/logs/tor-greeting.log").read_text()
    assert "main.o" in log
    for untouched in ("gencert.o", "automake", "autoconf", "config.status"):
        assert untouched not in log
    # The patch changes neither stock nor the compiled Tor that builds start from, so these two are
    # not compiled again.
    assert [line for line in compiled(caplog) if "tor-greeting" not in line] == []

    patch.write_text(CHANGE_GREETING)
    caplog.clear()
    again = ensure_series(checkout, ["greeting"])
    assert read_greeting(again["greeting"]) == "good morning"
    assert caplog.messages == []


def test_configure_runs_once_for_sources_with_the_same_configure_script(
    new_checkout: Path, tmp_path: Path, tiny_tarball: Path
) -> None:
    subprocess.run(["tar", "-xf", tiny_tarball, "-C", tmp_path], check=True)
    (source,) = tmp_path.glob("tor-*")
    main = source / "src/app/main.c"
    main.write_text(main.read_text().replace('"hello"', '"next commit"'))
    log = new_checkout / "build/tor/logs/configure-plain.log"
    ensure_series(new_checkout, [None])
    assert "checking for gcc" in log.read_text()
    built = ensure_series(new_checkout, [None], tor_source=str(source))
    assert "checking for gcc" not in log.read_text()
    assert read_greeting(built[None]) == "next commit"
    # A build that runs configure, instead of copying a configured tree, gives the same program and
    # the same files.
    elsewhere = write_checkout(tmp_path / "elsewhere")
    assert (
        built[None].sha256 == ensure_series(elsewhere, [None], tor_source=str(source))[None].sha256
    )
    for name in ("Makefile", "config.status"):
        here, there = (
            [line for line in path.read_text().splitlines() if "/tree" not in line]
            for root in (new_checkout, elsewhere)
            for path in root.glob(f"build/tor/base/*/configured/{name}")
            if "next commit" in (path.parent / "src/app/main.c").read_text()
        )
        assert here == there


def test_a_patch_can_add_files(checkout: Path) -> None:
    (checkout / "tor-patches/greeting/0002-file.patch").write_text(ADD_FILE)
    built = ensure_series(checkout, ["greeting"])
    assert read_greeting(built["greeting"]) == "good day"
    # The build works in a copy of the compiled Tor, and must not change the original.
    base = next((checkout / "build/tor/base").glob("plain-*/tree"))
    assert not (base / "src/app/greeting.c").exists()
    assert "greeting.c" not in (base / "Makefile").read_text()


def test_flags_of_the_environment_do_not_reach_the_build(
    built_checkout: Path, new_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CFLAGS", "CPPFLAGS"):
        monkeypatch.setenv(name, "-O0 -DNDEBUG -Dgreeting=surprise")
    # `make -n -j8 build` sets MAKEFLAGS. With this value, the make that builds Tor would only print
    # its commands, and would not find the job server.
    monkeypatch.setenv("MAKEFLAGS", "n -j8 --jobserver-auth=98,99")
    built = ensure_series(new_checkout, [None])
    reference = ensure_series(built_checkout, [None])
    assert built[None].sha256 == reference[None].sha256


@pytest.mark.parametrize(
    ("harmed", "content"),
    [("bin/tor-stock", "cut"), ("built.json", '{"sha256": '), ("built.json", "[]"),
     ("built.json", None), ("bin/tor-stock", None), ("bin/tor-gencert", None)],
)  # fmt: skip
def test_a_damaged_build_is_made_again(
    checkout: Path, harmed: str, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = (checkout / "build/tor/stock").resolve() / harmed
    path.unlink()
    if content is not None:
        path.write_text(content)
    built = ensure_series(checkout, [None])[None]
    assert read_greeting(built) == "hello"
    assert built.path.with_name("tor-gencert").is_file()
    assert any("damaged" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('= "hello"', '= "bonjour"', r"patching file src/app/main\.c; Hunk #1 FAILED at 1\."),
        # By default, GNU patch applies this patch with a fuzz of 2.
        (" #include <stdio.h>", " #include <stdlib.h>", r"patching .*main\.c; Hunk #1 FAILED"),
        ("main.c", "gone.c", r"can't find file to patch.*; \+\+\+ b/src/app/gone\.c"),
    ],
)
def test_a_patch_that_does_not_apply_is_named_with_its_hunk(
    checkout: Path, old: str, new: str, problem: str
) -> None:
    patch = checkout / "tor-patches/greeting/0001-greeting.patch"
    patch.write_text(CHANGE_GREETING.replace(old, new))
    message = rf"^greeting/0001-greeting\.patch does not apply to tor-0\.4\.9\.99\S+: {problem}"
    with pytest.raises(UserError, match=message) as caught:
        ensure_series(checkout, ["greeting"])
    assert "TOR_SOURCE" in (caught.value.hint or "")
    assert leftovers(checkout) == []
    # The earlier build still exists and is unchanged.
    assert (checkout / "build/tor/greeting/bin/tor-greeting").is_file()


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("main.c:7: error: expected ';'", BuildFailedError),
        ("cc1: fatal error: main.s: No space left on device", UserError),
        ("gcc: fatal error: Killed signal terminated program cc1", UserError),
    ],
)
def test_a_failure_of_the_machine_is_not_one_of_the_source(
    tmp_path: Path, output: str, error: type[UserError]
) -> None:
    """Bisection skips a commit only if its source is at fault."""
    command = ["sh", "-c", 'echo "$0"; exit 2', output]
    with pytest.raises(UserError, match=r"compile failed") as caught:
        building.run_logged(command, tmp_path, tmp_path / "log", "compile")
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("program", "message"),
    [("gcc", "C compiler .* not found"), ("autoreconf", "`autoreconf` is missing")],
)
def test_a_missing_program_is_named(
    new_checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for entry in Path(folder).iterdir():
            if entry.name != program and not (path / entry.name).exists():
                (path / entry.name).symlink_to(entry)
    monkeypatch.setenv("PATH", str(path))
    with pytest.raises(UserError, match=message) as caught:
        ensure_series(new_checkout, [None])
    assert "make setup" in (caught.value.hint or "")


STOCK = "onionlab.programs.tor.build:ensure_series(root, [None])"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("until", "unfinished"), [("autoreconf", "base/*/*"), ("configure", "base/*/tree")]
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_build_leaves_no_half_result(
    new_checkout: Path, how: signal.Signals, until: str, unfinished: str
) -> None:
    process = start_build(STOCK, new_checkout, until=until)
    os.killpg(process.pid, how)
    process.communicate()
    assert not (new_checkout / "build/tor/stock").exists()
    assert not list((new_checkout / "build/tor").glob(unfinished))
    assert not list((new_checkout / "build/tor").glob("store/*"))
    built = ensure_series(new_checkout, [None])
    assert read_greeting(built[None]) == "hello"
    assert leftovers(new_checkout) == []


def test_a_second_build_waits_for_the_first(
    new_checkout: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = start_build(STOCK, new_checkout, until=": building ")
    built = ensure_series(new_checkout, [None])
    assert process.wait(timeout=60) == 0
    assert caplog.messages == ["waiting for another build of Tor in this checkout"]
    assert read_greeting(built[None]) == "hello"


class Sleeper:
    """A step of a build, whose program runs for a minute unless it is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = folder / "pid"

    def run(self) -> None:
        command = ["sh", "-c", f"echo $$ > {self.pid}; exec sleep 60"]
        building.run_logged(command, self.folder, self.folder / "log", "sleeping")

    def wait(self) -> None:
        """Wait until the step runs."""
        while not (self.pid.exists() and self.pid.read_text().strip()):
            time.sleep(0.01)

    def require_ended(self) -> None:
        with pytest.raises(ProcessLookupError):
            os.kill(int(self.pid.read_text()), 0)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failed_build_ends_the_concurrent_one(tmp_path: Path, failing: int) -> None:
    sleeper = Sleeper(tmp_path)

    def fails() -> None:
        sleeper.wait()
        raise UserError("there is no source")

    tasks = [sleeper.run, sleeper.run]
    tasks[failing] = fails
    started = time.monotonic()
    with pytest.raises(UserError, match="there is no source"):
        building.run_concurrently(*tasks)
    assert time.monotonic() - started < 10
    sleeper.require_ended()


@pytest.mark.parametrize("beside", [False, True])
def test_an_interrupted_step_ends_its_program(tmp_path: Path, beside: bool) -> None:
    sleeper = Sleeper(tmp_path)

    def interrupt() -> None:
        sleeper.wait()
        # The program may write its id before Popen() returns. Wait until Popen() has returned.
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    together = functools.partial(building.run_concurrently, sleeper.run, lambda: None)
    thread = threading.Thread(target=interrupt)
    started = time.monotonic()
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        (together if beside else sleeper.run)()
    thread.join()
    assert time.monotonic() - started < 30
    sleeper.require_ended()


# Commands that use only finished builds, and may not start one


def test_finished_builds_are_used_and_missing_ones_are_not_started(
    built_checkout: Path, new_checkout: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with building.no_builds():
        built = ensure_series(built_checkout, ["greeting"])
    assert built["greeting"].path.is_file()
    message = "build/tor does not contain all builds that are needed"
    with building.no_builds(), pytest.raises(building.NotBuiltError, match=message):
        ensure_series(new_checkout, ["greeting"])
    assert caplog.messages == []
    # The refused attempt leaves at most the folder of logs.
    left = {path.name for path in (new_checkout / "build/tor").iterdir()}
    assert left <= {"logs"}
    # Builds are allowed again after the block.
    building.ensure_building_allowed("nothing")


def test_nothing_is_fetched(tmp_path: Path) -> None:
    with (
        building.no_builds(),
        pytest.raises(building.NotBuiltError, match="Tor's source is missing"),
    ):
        PrivateApt(tmp_path, tmp_path / "log", "Tor's source", sources=True, hint="")
    assert list(tmp_path.iterdir()) == []


def test_builds_side_by_side_are_not_started_either() -> None:
    build = functools.partial(building.ensure_building_allowed, "it")
    with building.no_builds(), pytest.raises(building.NotBuiltError):
        building.run_concurrently(build, build)
    building.run_concurrently(build, lambda: None)
