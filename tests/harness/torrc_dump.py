"""The options that Tor reads from the torrc files of a host in a composed run directory."""

from __future__ import annotations

import posixpath
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from analysis.formats.files import HOST_TEMPLATES
from onionlab.experiment.tor_parameters import ADDED_LISTS, REPLACED_LISTS
from onionlab.tornet.torrc_options import read_lines

REPOSITORY = Path(__file__).resolve().parents[2]
TOR = next(iter(sorted(REPOSITORY.glob("build/tor/circuit-policy/bin/tor-circuit-policy"))), None)
"""A built Tor, which has all options of stock Tor. None if it is not built."""

Dump = dict[str, list[str | float]]


def dump(files: Mapping[str, bytes], host: str, names: Iterable[str], directory: Path) -> Dump:
    """Return the values of the named options in a host's files, and check them with Tor.

    The files must give numbers without units, as Tor prints them. Tor does not print options that
    have their built-in value. For all other options, Tor must print the values in the files.

    directory: an empty folder for Tor.
    """
    read = _read(files, host)
    found = {name: read.get(name.lower(), []) for name in names}
    if TOR is not None:
        printed = _ask(TOR, files, host, directory)
        of_tor = {name: printed.get(name.lower()) for name in names}
        assert {name: one for name, one in of_tor.items() if one is not None} == {
            name: one for name, one in found.items() if of_tor[name] is not None
        }
    return found


def _read(files: Mapping[str, bytes], host: str) -> Dump:
    def read(path: str) -> str:
        return files[posixpath.normpath(f"{HOST_TEMPLATES}/{host}/{path}")].decode()

    found: Dump = {}
    for path in ("torrc-defaults", "torrc"):
        mine: Dump = {}
        for _, name, value in read_lines(path, read):
            key = name.lstrip("+/").lower()
            if name.startswith("/"):
                mine.pop(key, None)
            elif name.startswith("+"):
                mine[key] = [*found.get(key, []), *mine.get(key, []), plain(value)]
            elif key in ADDED_LISTS | REPLACED_LISTS:
                mine[key] = [*mine.get(key, []), plain(value)]
            else:
                mine[key] = [plain(value)]
        found |= mine
    return found


def _ask(tor: Path, files: Mapping[str, bytes], host: str, directory: Path) -> Dump:
    for path, content in files.items():
        if path.endswith(("torrc", "torrc-defaults", "v3bw")):
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)
    found: Dump = {}
    # `short` prints only options that differ from the file of defaults, so Tor prints each of the
    # two files separately. `full` would print all options, but fails with an assertion.
    for defaults, torrc in (("/dev/null", "torrc-defaults"), ("torrc-defaults", "torrc")):
        printed = subprocess.run(
            # An authority needs its address, which only the second file has.
            [
                *(tor, "--defaults-torrc", defaults, "-f", torrc),
                *("--Address", "100.0.0.1", "--dump-config", "short"),
            ],
            cwd=directory / HOST_TEMPLATES / host,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        mine: Dump = {}
        for line in printed.splitlines():
            name, _, value = line.partition(" ")
            mine.setdefault(name.lower(), []).append(plain(value))
        found |= mine
    return found


def plain(value: str) -> str | float:
    """Return a number without its unit, and any other value unchanged."""
    number, _, unit = value.partition(" ")
    try:
        return float(number) if unit in ("", "bytes", "msec") else value
    except ValueError:
        return value
