"""Calls of tornettools, and their errors.

A small program replaces tornettools in all tests but the last one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from onionlab.errors import UserError
from onionlab.paths import working_root
from onionlab.programs.tor.build import ensure_series
from onionlab.rundir.seeded_keys import draw_seeded_keys
from onionlab.tornet.generating import find_tornettools, generate_tornets
from onionlab.tornet.keeping import KeptTornet, list_seeds
from onionlab.tornet.model import RELAY_ROLES

from .staging import write_staged
from .tiny import TinyTornet

TORNETTOOLS = """\
#!{python}
# This fake tornettools records its arguments, and copies the tiny network made for the given seed.
import json, shutil, sys
words = sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(words) + "\\n")
open("authority_certificate", "w").close()
if "--fail" in words:
    print("first line")
    sys.exit("ValueError: no relays")
shutil.copytree({made!r} + words[1], words[words.index("--prefix") + 1], symlinks=True)
"""


class Place:
    """A checkout, files like those of `tornettools stage`, and a replacement for tornettools."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "checkout"
        self.calls = folder / "calls"
        self.staged = folder / "staged"
        self.tmodel = folder / "tmodel"
        (self.tmodel / "data").mkdir(parents=True)
        self.staged.mkdir()
        for name in ("relayinfo_staging_2026.json", "userinfo_staging.json"):
            (self.staged / name).write_text("{}")
        (self.staged / "networkinfo_staging.gml").write_text("graph []")
        for seed in (1, 2):
            TinyTornet(seed).write(folder / f"made{seed}")
        program = folder / "tornettools"
        made = str(folder / "made")
        program.write_text(
            TORNETTOOLS.format(python=sys.executable, calls=str(self.calls), made=made)
        )
        program.chmod(0o755)
        monkeypatch.setenv("TORNETTOOLS", str(program))
        self.keyed: list[tuple[str, int]] = []

    def generate(self, seeds: int = 2, *options: str) -> list[int]:
        kept = generate_tornets(
            self.root,
            "tiny",
            seeds,
            staged=self.staged,
            tmodel=self.tmodel,
            options=options,
            build_tor=lambda: Path("/x/tor-stock"),
            draw_keys=lambda folder, seed: self.keyed.append((folder.name, seed)),
        )
        return [one.seed for one in kept]

    @property
    def called(self) -> list[list[str]]:
        """The arguments of each call of tornettools."""
        return [json.loads(line) for line in self.calls.read_text().splitlines()]

    def refused(self, *options: str) -> UserError:
        with pytest.raises(UserError) as caught:
            self.generate(2, *options)
        assert list_seeds(self.root, "tiny") == []
        assert not (self.root / "networks").exists() or not any((self.root / "networks").iterdir())
        return caught.value


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_each_seed_is_a_network(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    assert place.generate(2, "--network_scale", "0.01") == [1, 2]
    assert list_seeds(place.root, "tiny") == [1, 2]
    calls = place.called
    assert [words[:3] for words in calls] == [["-s", "1", "generate"], ["-s", "2", "generate"]]
    names = [Path(word).name for word in calls[0][3:7]]
    expected = ["relayinfo_staging_2026.json", "userinfo_staging.json", "networkinfo_staging.gml"]
    assert names == [*expected, "tmodel"]
    assert calls[0][7:13] == [
        *("--tor", "/x/tor-stock", "--torgencert", "/x/tor-gencert", "--network_scale", "0.01")
    ]
    assert [path.name for path in (place.root / "networks").iterdir()] == ["tiny"]
    assert place.keyed == [("tornet-1", 1), ("tornet-2", 2)]
    assert caplog.messages[1] == "network 2 of 2: tornettools generate, seed 2"


def test_a_failure_is_reported_with_the_last_lines(place: Place) -> None:
    error = place.refused("--fail")
    assert error.message == "tornettools generate failed (exit status 1)"
    assert "ValueError: no relays" in (error.hint or "")


def test_inputs_that_are_missing(place: Place) -> None:
    (place.tmodel / "data").rmdir()
    assert "has no folder data" in place.refused().message
    graph = place.staged / "networkinfo_staging.gml"
    shutil.copy(graph, place.staged / "networkinfo_staging2.gml")
    assert "has 2 files networkinfo_staging*.gml" in place.refused().message
    (place.staged / "relayinfo_staging_2026.json").unlink()
    assert "has no relayinfo_staging*.json" in place.refused().message


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--prefix=elsewhere"], "--prefix: not allowed", "the command sets it"),
        (["--torg", "x"], "--torgencert: not allowed", "the command sets it"),
        (["--seed=3"], "--seed: not allowed", "the command sets it"),
        (["--rec"], "--record: not allowed", "a second OnionTrace"),
        (["-rm2"], "--record: not allowed", "a second OnionTrace"),
        (["--to", "x"], "ambiguous option: --to could match --tor, --torgencert", "correct"),
        (["--atlas"], "argument -a/--atlas: expected one argument", "correct OPTIONS"),
    ],
)
def test_options_that_are_refused(
    place: Place, words: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = place.refused(*words)
    assert error.message.removeprefix("tornettools generate: ") == message
    assert hint in (error.hint or "")
    assert not place.calls.exists()
    assert capsys.readouterr().err == ""


def test_options_of_generate_go_to_it(place: Place) -> None:
    """generate's -s is the scale of servers. tornettools itself has a different option -s."""
    options = ["-s", "0.2", "--se=0.2", "--torperf_num_exit", "3", "-n0.01", "-e", "BW"]
    assert place.generate(1, *options) == [1]
    (call,) = place.called
    assert call[11:-2] == options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--geo=a.gml",), ("--geoip_path", "{}/a.gml")),
        (("-a", "a.gml", "-m", "2"), ("-m", "2", "--atlas", "{}/a.gml")),
        (("-ga.gml",), ("--geoip_path", "{}/a.gml")),
    ],
)
def test_it_works_in_a_folder_of_its_own(
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    """tor-gencert writes into the current folder, so tornettools gets its own current folder.

    Relative paths in options are therefore made absolute.
    """
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    place.generate(1, *words)
    (call,) = place.called
    assert call[11:-2] == [word.format(here) for word in expected]
    assert not any(here.iterdir())


def test_tornettools_that_is_missing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORNETTOOLS", "/nonexistent/tornettools")
    assert place.refused().message == "/nonexistent/tornettools not found"
    monkeypatch.delenv("TORNETTOOLS")
    monkeypatch.setenv("PATH", "/nonexistent")
    error = place.refused()
    assert error.message == "tornettools is not installed"
    assert "TORNETTOOLS=/path/to/tornettools" in (error.hint or "")


def test_an_existing_set_is_kept(place: Place) -> None:
    place.generate(1)
    with pytest.raises(UserError, match="networks tiny already exist"):
        place.generate(2)
    assert list_seeds(place.root, "tiny") == [1]


def test_a_network_that_cannot_be_imported_leaves_nothing(place: Place, tmp_path: Path) -> None:
    (tmp_path / "made2" / "shadow.config.yaml").unlink()
    place.refused()


# An installed tornettools, with invented outputs of `stage`

TMODEL = "ONIONLAB_TMODEL"
OPTIONS = (
    *("--network_scale", "0.003", "--process_scale", "0.001", "--load_scale", "0.01"),
    *("--torperf_num_exit", "2", "--torperf_num_onion_service", "2"),
    *("--onion_service_user_scale", "1"),
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the inputs of `tornettools generate`: a folder of staged files, and one of tmodel.

    The staged files are invented, and so is tmodel's atlas, the graph of latencies.
    """
    try:
        find_tornettools()
    except UserError as error:
        pytest.skip(f"needs tornettools: {error.message}")
    named = os.environ.get(TMODEL)
    if not named:
        pytest.skip(f"needs a copy of tmodel's data, named by {TMODEL}")
    staged, tmodel = write_staged(tmp_path_factory.mktemp("made-up"))
    for folder in ("data/privcount", "data/shadow/tgen"):
        shutil.copytree(Path(named) / folder, tmodel / folder)
    return staged, tmodel


@pytest.mark.slow
def test_networks_are_generated_and_imported(inputs: tuple[Path, Path], tmp_path: Path) -> None:
    staged, tmodel = inputs
    built = ensure_series(working_root(), {None})[None]

    def generate(root: Path, seeds: int) -> list[KeptTornet]:
        return generate_tornets(
            root,
            "made-up",
            seeds,
            staged=staged,
            tmodel=tmodel,
            options=OPTIONS,
            build_tor=lambda: built.path,
            draw_keys=draw_seeded_keys,
        )

    one, other = generate(tmp_path, 2)
    # Network 1 does not depend on the folder, nor on the random keys that Tor draws while
    # tornettools runs, because keys that depend only on the seed replace them.
    (again,) = generate(tmp_path / "elsewhere", 1)
    assert again.tornet.files == one.tornet.files
    assert again.tornet.content_sha256 == one.tornet.content_sha256
    assert list_seeds(tmp_path, "made-up") == [1, 2]
    assert one.tornet.content_sha256 != other.tornet.content_sha256
    for kept in (one, other):
        counts = kept.tornet.counts
        # The network has 0.3% of the public network's 6,486 relays, with the same shares of guards
        # and middle relays.
        assert counts["guard"] in range(4, 8)
        assert counts["middle"] in range(9, 13)
        assert (counts["authority"], counts["perf-client"]) == (3, 4)
        assert counts["markov-client"] > 100
        assert counts["onion-service"] >= 1
        assert kept.tornet.origin.generate["network_scale"] == 0.003
        assert kept.tornet.origin.atlas.sha256
        # The BandwidthRate of most relays exceeds the rate of their link, and so has no effect.
        relays = [h for h in kept.tornet.hosts.values() if h.role in RELAY_ROLES]
        limited = [h for h in relays if (h.rate_bytes_per_s or 2**40) < h.up_bit_per_s / 8]
        assert len(limited) <= 2
