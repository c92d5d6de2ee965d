"""Write the values that tgentools reads from the golden logs to golden/tgentools.json.

    PYTHONPATH=PATH_TO_TGEN/tools python expect_golden.py GOLDEN_DIRECTORY

For each log and each ended stream (by tgen's number), tgentools.json has the start and the end
(Unix seconds), the outcome, the times to the first and the last byte (seconds from the command),
and the times to some sizes (seconds from the start).
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tgentools.analysis import Analysis  # type: ignore[import-not-found]


def read(path: Path) -> dict[str, Any]:
    """Return the ended streams that tgentools finds in one log."""
    text = path.read_bytes()
    if path.suffix == ".gz":
        text = gzip.decompress(text)
    with tempfile.NamedTemporaryFile(suffix=".log") as plain:
        plain.write(text)
        plain.flush()
        analysis = Analysis(nickname="client")
        analysis.add_tgen_file(plain.name)
        analysis.analyze(do_complete=True)
    streams = {}
    for stream in analysis.json_db["data"]["client"]["tgen"]["streams"].values():
        times = {
            key: int(stream["time_info"][f"usecs-to-{key}"])
            for key in ("command", "first-byte-recv", "last-byte-recv")
        }
        elapsed = stream.get("elapsed_seconds", {}).get("payload_bytes_recv", {})
        streams[stream["stream_info"]["id"]] = {
            "start": stream["unix_ts_start"],
            "end": stream["unix_ts_end"],
            "success": stream["is_success"],
            "error": stream["stream_info"]["error"],
            "ttfb_from_command": (times["first-byte-recv"] - times["command"]) / 1e6,
            "ttlb_from_command": (times["last-byte-recv"] - times["command"]) / 1e6,
            "elapsed": {str(size): value for size, value in elapsed.items()},
        }
    return streams


if __name__ == "__main__":
    golden = Path(sys.argv[1])
    logs = sorted(p for p in golden.iterdir() if ".log" in p.name)
    expected = {p.name: read(p) for p in logs}
    (golden / "tgentools.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
