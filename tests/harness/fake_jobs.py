"""A workflow with jobs that do not simulate: a shell script replaces Python in each job."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from shell_scripts import write_script

from analysis.formats.files import RECORDS
from onionlab.runs.workflow import drive
from onionlab.runs.workflow.executor import JobSize

# A run whose name begins with bad always fails. A run whose name begins with cc fails the first
# time. A run whose name begins with e waits for the file `end`. If the file `other` exists, each
# job begins by finishing the run that this file names, as if another command had finished it.
#
# Like `Store.finish`, a job moves a finished run into the store by one rename, which fails if the
# target is a folder with content. Like `extract_records`, a job writes only missing records.
JOB = """\
cd {folder} || exit 9
if test "$3" = report; then
    echo made >>reports
    test ! -e no-report
    exit
fi
echo "$9" >>calls
echo "$7" >>plans
echo "$PYTHONPATH" >path
test "${{10}}" = {option} || exit 9
extract() {{
    test -e runs/"$1"/{records}/parse.json && return
    mkdir -p runs/"$1"/{records} && echo "$2" >runs/"$1"/{records}/parse.json
}}
finish() {{
    test -e runs/"$1"/manifest.json && return
    mkdir -p attempts/"$1" && echo '{{}}' >attempts/"$1"/manifest.json
    mv -T attempts/"$1" runs/"$1"
}}
if test -e other; then
    finish "$(cat other)" && extract "$(cat other)" '{{"other": 1}}' || exit 8
fi
case "$9" in
bad*) exit 1 ;;
cc*) test "$(grep -c "$9" calls)" -gt 1 || exit 1 ;;
e*) until test -e end; do sleep 0.2; done ;;
esac
finish "$9" && extract "$9" '{{}}'
"""


class FakeJobs:
    """A store in ``root / "runs"``. Each job writes an empty run into it, and records its call.

    option: the command-line option that the workflow must give to each job. Jobs without it fail.
    size: the size of each run.
    """

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, option: str, size: JobSize
    ) -> None:
        self.root, self.store, self.size = root, root / "runs", size
        self.store.mkdir()
        script = JOB.format(folder=shlex.quote(str(root)), records=RECORDS, option=option)
        job = write_script(root / "job", script)
        monkeypatch.setattr(
            drive,
            "job_sizes",
            lambda root, plans: {run.run_id: self.size for plan in plans for run in plan.runs},
        )
        original = drive._Workflow._configuration
        monkeypatch.setattr(
            drive._Workflow,
            "_configuration",
            lambda *arguments: {**original(*arguments), "python": str(job)},
        )

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file that the jobs wrote, or none if it is missing."""
        path = self.root / name
        return path.read_text().splitlines() if path.exists() else []

    def finished(self) -> set[str]:
        """Return the names of the finished runs."""
        return {path.parent.name for path in self.store.glob("*/manifest.json")}
