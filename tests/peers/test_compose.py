"""Run directories composed from a `peers` experiment, and the check of the peers' logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness.conftest import make_shadow_engine

from onionlab.engines.base import Process
from onionlab.errors import UserError
from onionlab.experiment import load
from onionlab.experiment.peers import PeersSettings
from onionlab.programs.libtorrent.variants import load_peer_variants
from onionlab.rundir import RunDirectory
from onionlab.rundir.peers import SEED_START_MS, compose_peers, verify_peer_logs
from onionlab.rundir.verify import RunRefusedError

REPOSITORY = Path(__file__).resolve().parents[2]

TEXT = """\
kind: peers
title: two peers
description: for a test
network: {rtt: "100 ms", seed_bandwidth: "50 Mbit", downloader_bandwidth: "800 KB/s"}
transfer: {size: "1 MiB"}
libtorrent: {variants: [rate-only, slow-start], baseline: slow-start}
time: {measured: "5 s"}
seeds: 2
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "two-peers.yaml"
    path.write_text(text)
    return str(path)


@pytest.fixture
def settings(tmp_path: Path) -> PeersSettings:
    (level,) = load(write(tmp_path, TEXT), root=REPOSITORY).levels.values()
    assert isinstance(level.settings, PeersSettings)
    return level.settings


def compose(settings: PeersSettings, variant: str = "slow-start", seed: int = 1) -> RunDirectory:
    variants = load_peer_variants(REPOSITORY)
    return compose_peers(
        settings, variant=variants[variant], seed=seed, engine=make_shadow_engine()
    )


def test_the_path_has_the_round_trip_and_the_rates(settings: PeersSettings) -> None:
    network = compose(settings).simulation.network
    assert network.latency_us["seed", "downloader"] == 50_000
    rates = {place.name: place.down_bit_per_s for place in network.places}
    assert rates == {"seed": 50_000_000, "downloader": 6_400_000}


def argument(process: Process, name: str) -> str:
    return process.arguments[process.arguments.index(name) + 1]


def test_variants_of_a_seed_differ_only_in_their_program(settings: PeersSettings) -> None:
    one, other = (compose(settings, name) for name in ("slow-start", "rate-only"))
    differing = {name for name in one.files if one.files[name] != other.files[name]}
    assert differing == {"shadow.config.yaml"}
    config = one.files["shadow.config.yaml"].replace(b"peer-slow-start", b"peer-rate-only")
    assert config == other.files["shadow.config.yaml"]
    assert one.tor_programs == ("libtorrent-peer-slow-start",)


@pytest.mark.parametrize("connects", ["downloader", "seed"])
def test_seeds_differ_by_start_and_content_inside_the_spread(
    settings: PeersSettings, connects: str
) -> None:
    transfer = settings.transfer.model_copy(update={"connects": connects})
    settings = settings.model_copy(update={"transfer": transfer})
    starts = set()
    for seed in range(20):
        processes = compose(settings, seed=seed).simulation.processes
        (process,), (own,) = processes["downloader"], processes["seed"]
        assert 1000 <= process.start_ms <= 2000
        assert own.start_ms == SEED_START_MS
        if connects == "seed":
            # In all networks the seed connects at the same time, after the start of the downloader.
            assert argument(own, "--to") == "downloader:6881"
            assert own.start_ms + int(argument(own, "--start-ms")) == 2000
            assert "--from" not in process.arguments
        else:
            assert argument(process, "--from") == "seed:6881"
            assert "--to" not in own.arguments
        assert argument(process, "--content-seed") == str(seed)
        starts.add(process.start_ms)
    assert len(starts) > 10


def test_the_analysis_knows_the_role_of_each_host(settings: PeersSettings) -> None:
    peers = json.loads(compose(settings).files["peers.json"])
    assert peers == {"seed": "seed", "downloader": "downloader", "rtt_s": 0.1, "sample_s": 0.005}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: peers", "kind: peer", "expected peers or tornettools, or no key `kind`"),
        ("[rate-only, slow-start]", "[rate-onyl, slow-start]", 'no variant "rate-onyl"'),
        ("baseline: slow-start", "baseline: other", "libtorrent.baseline"),
        ('size: "1 MiB"', 'size: "1 MiB", piece: "100 KiB"', "expected a piece of 16 KiB"),
        ("seeds: 2", "seeds: 2\ntraffic: {}", "traffic: unknown key"),
        ('rtt: "100 ms"', 'rtt: "0 ms"', "network.rtt"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_key(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in TEXT
    with pytest.raises(UserError, match=message):
        load(write(tmp_path, TEXT.replace(old, new)), root=REPOSITORY)


# Check of the logs

HEADER = "onionlab-peer 1 role=seed rule=slow-start libtorrent=2.0.8.0 transport=utp size=1"
CONNECTED = "946684802000000 connected 100.20.0.1:6881"


def verify(folder: Path, text: str) -> dict[str, int]:
    path = folder / "seed" / "libtorrent-peer-slow-start.1000.stdout"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return verify_peer_logs(folder, {"seed": "slow-start"})


def test_a_peer_that_followed_its_rule_counts(tmp_path: Path) -> None:
    assert verify(tmp_path, f"{HEADER}\n{CONNECTED}\n") == {"request rule: slow-start": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "logged nothing"),
        (f"{CONNECTED}\n", "no first line"),
        (f"{HEADER.replace('slow-start', 'rate-only')}\n{CONNECTED}\n", "rule rate-only instead"),
        (f"{HEADER}\n946684802000000 disconnected connected refused\n", "was never connected"),
    ],
)
def test_a_peer_that_did_not_does_not(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RunRefusedError, match=message):
        verify(tmp_path, text)
