"""Making one run: errors of the progress file, a full disk, refused runs and truncated logs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.formats.files import CLIENTS, ERROR, HOSTS, PROGRESS, RUN
from analysis.formats.json_files import read_json, write_json
from analysis.formats.manifest import Manifest
from analysis.formats.plan_file import PlannedRun, Request, Resources
from onionlab.engines.base import EngineFailureError, Progress, Usage
from onionlab.engines.processes import SESSION_FILE, record_session
from onionlab.errors import UserError
from onionlab.rundir.verify import RunRefusedError
from onionlab.runs import runner
from onionlab.runs.plan import Plan
from onionlab.runs.store import Store

PLANNED = PlannedRun("ab", "tiny", "rr", 1)


class OneRun:
    """A run whose engine reports progress twice, at 12 and 13 simulated seconds.

    Tests can replace ``look``, which is called at each report, and ``end``, which the engine calls
    last.
    """

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.end: Callable[[], None] = lambda: None
        self.look: Callable[[float], None] = lambda simulated_s: None
        self.bench: Any = SimpleNamespace(
            compose=lambda *_: SimpleNamespace(
                tor_options={},
                identity=lambda *_: {},
                run_id=lambda *_: "ab",
                write=lambda folder: folder.mkdir(parents=True, exist_ok=True),
                simulation=None,
                tor_programs=(),
            ),
            programs={},
            executables=dict,
            engine=SimpleNamespace(run=self._run),
            verify=lambda *_: {"it": 1},
            watch=lambda *_: lambda simulated_s: self.look(simulated_s),
        )

    def _run(self, folder: Path, *, on_progress: Callable[[Progress], None], **_: Any) -> Usage:
        for simulated_s in (12.0, 13.0):
            on_progress(Progress(simulated_s, 20.0, 1.0, 1))
        self.end()
        return Usage(1.0, 1.0, 1)

    def simulate(self, place: Path | None = None) -> Manifest:
        place = place or self.store.partial(PLANNED.run_id)
        return runner._simulate(self.bench, self.store, PLANNED, [0], place)

    def make(self) -> dict[str, int]:
        return dict(self.simulate().proofs)


@pytest.fixture
def one_run(tmp_path: Path) -> OneRun:
    return OneRun(tmp_path)


def refuse_to_write(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def write(path: Path, data: Any, *, durable: bool) -> None:
        raise OSError(number, "it cannot be written", str(path))

    monkeypatch.setattr(runner, "write_json", write)


def test_progress_that_cannot_be_written_ends_no_run(
    one_run: OneRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_write(monkeypatch, errno.EIO)
    assert one_run.make() == {"it": 1}


@pytest.mark.parametrize("error", [None, EngineFailureError("Shadow ended", ["last words"])])
def test_a_run_on_a_full_disk_comes_to_its_end_and_does_not_count(
    one_run: OneRun, monkeypatch: pytest.MonkeyPatch, error: EngineFailureError | None
) -> None:
    """Programs do not report lines that they could not log, so lines may be missing in the logs."""
    ended: list[bool] = []

    def end() -> None:
        ended.append(True)
        if error:
            raise error

    one_run.end = end
    refuse_to_write(monkeypatch, errno.ENOSPC)
    told = f"{error or 'its logs may lack lines'}: the disk was full while it ran"
    with pytest.raises(EngineFailureError if error else RunRefusedError, match=told) as caught:
        one_run.make()
    assert vars(caught.value)["log_tail"] == (error.log_tail if error else [])
    assert ended == [True]


@pytest.mark.parametrize("since_s", [12.0, 13.0, 14.0])
@pytest.mark.parametrize("status", [0, 101])
def test_the_disk_to_which_a_run_writes_may_be_full_although_the_store_is_not(
    one_run: OneRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since_s: float, status: int
) -> None:
    """A job of a cluster writes to its node's disk. The disk may also fill at the end of a run."""
    place, now_s = tmp_path / "node-disk" / "ab", [0.0]
    original = os.posix_fallocate

    def fallocate(descriptor: int, offset: int, length: int) -> None:
        written = Path(f"/proc/self/fd/{descriptor}").readlink()
        if written.is_relative_to(place) and now_s[0] >= since_s:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(descriptor, offset, length)

    def end() -> None:
        now_s[0] = 14.0
        if status:
            raise EngineFailureError(f"Shadow ended with status {status}", [])

    monkeypatch.setattr("os.posix_fallocate", fallocate)
    one_run.look = lambda simulated_s: now_s.__setitem__(0, simulated_s)
    one_run.end = end
    with pytest.raises(EngineFailureError if status else RunRefusedError, match="disk was full"):
        one_run.simulate(place)


def test_a_run_does_not_keep_the_file_about_its_processes(one_run: OneRun) -> None:
    session = one_run.store.partial("ab") / SESSION_FILE
    one_run.end = lambda: record_session(session.parent, os.getpid())
    one_run.simulate()
    assert not session.exists()


def test_a_run_has_the_commit_at_its_start(
    one_run: OneRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = ["before"]
    monkeypatch.setattr(runner, "current_commit", lambda: commits[-1])
    one_run.end = lambda: commits.append("after")
    assert one_run.simulate().commit == "before"


@pytest.mark.parametrize(
    ("error", "message", "remedy"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/node/a"), "/node/a: No space", "free"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/node/a"), "/node/a: Disk quota", "quota"),
        (shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")]), "a -> b: No", ""),
        (UserError("no gcc", "install it"), "no gcc", "install it"),
    ],
)
def test_a_job_of_a_cluster_stores_why_it_cannot_make_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str, remedy: str
) -> None:
    """Snakemake submits the job again. The second attempt ends at once with the same reason."""
    calls = []

    def open_builder(*_: object) -> None:
        calls.append(1)
        raise error

    monkeypatch.setattr(runner, "open_run_builder", open_builder)
    plan = Plan(
        Request("one"), (PLANNED,), tmp_path / "runs", tmp_path / "out", 1, Resources(1, 1, 1)
    )
    with pytest.raises(UserError, match=message):
        runner.execute_on_cluster(tmp_path, plan, "ab")
    failure = read_json(Store(plan.store).failed("ab") / ERROR)
    assert message in failure["message"]
    assert "\n" not in failure["message"]
    assert remedy in " ".join(failure["log"])
    with pytest.raises(UserError, match=f"run tiny rr seed 1 failed: on node .*: {message}"):
        runner.execute_on_cluster(tmp_path, plan, "ab")
    assert len(calls) == 1


def test_a_run_that_the_watch_refuses_ends(one_run: OneRun) -> None:
    def look(simulated_s: float) -> None:
        if simulated_s > 12:
            raise RunRefusedError("another proof", [])

    one_run.look = look
    one_run.end = lambda: pytest.fail("the engine went on")
    with pytest.raises(RunRefusedError, match="another proof"):
        one_run.make()


BEAT = (
    "2000-01-01 00:00:{0:02} 9466848{0:02}.000000 [message] [tgen-driver.c:254] "
    "[_tgendriver_onHeartbeat] [driver-heartbeat] [bytes-read=0,bytes-written=0]\n"
)
EXIT = (
    "2000-01-01 00:00:{0:02} 9466848{0:02}.000000 [message] [tgen-main.c:174] [_tgenmain_run] "
    "returning 0 from main\n"
)


@pytest.mark.parametrize("padding", [0, 2000])
def test_a_run_with_a_cut_log_is_refused(one_run: OneRun, padding: int) -> None:
    """The cut is at the end of a line, so the log itself does not show that lines are missing."""
    place = one_run.store.partial("ab")
    beats = [BEAT.format(second) for second in range(1, 30)]
    logs = {
        "cut": [*beats[:20], BEAT.format(20).replace("driver-heartbeat", "note") * padding],
        "exited": [*beats[:10], EXIT.format(10)],
        "idle": [BEAT.format(1).replace("driver-heartbeat", "note")],
        "whole": beats,
    }

    def end() -> None:
        for host, lines in logs.items():
            folder = place / HOSTS / host
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "tgen.1000.stdout").write_text("".join(lines))
        write_json(place / CLIENTS, dict.fromkeys(logs, "web"))
        write_json(place / RUN, {"epoch_unix_s": 946684800, "stop_s": 30})

    one_run.end = end
    with pytest.raises(RunRefusedError, match=r"1 clients .* \(cut\).* ends at 20 s, .* at 30 s"):
        one_run.make()
    del logs["cut"]
    assert one_run.make() == {"it": 1}


def test_a_waiting_run_reports_it(one_run: OneRun, caplog: pytest.LogCaptureFixture) -> None:
    runner._report_waiting(one_run.store, PLANNED)
    assert caplog.messages[0].startswith("tiny rr seed 1 waits for a CPU")
    state = read_json(one_run.store.partial("ab") / PROGRESS)
    assert (state["title"], state["waiting"]) == ("tiny rr seed 1", True)
    assert one_run.make() == {"it": 1}
    assert read_json(one_run.store.partial("ab") / PROGRESS)["waiting"] is False
