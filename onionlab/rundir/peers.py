"""Compose the run directory of a `peers` experiment, and verify its logs.

Such a run has two libtorrent peers, a seed and a downloader, and no Tor.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from analysis.formats.files import HOST_TEMPLATES, PEERS, RUN
from analysis.formats.run_files import PeerPair, RunClock, written
from onionlab.engines.base import EPOCH_UNIX_S, Engine, Process, Simulation
from onionlab.experiment.peers import PeersSettings
from onionlab.network.draws import draw, run_seed
from onionlab.network.layout import Host, Network, Place
from onionlab.programs.libtorrent.build import peer_program
from onionlab.programs.libtorrent.variants import PeerVariant
from onionlab.rundir.compose import RunDirectory, engine_options, resolved_text
from onionlab.rundir.verify import LAST_LINES, RunRefusedError, read_logs
from onionlab.yamlfile.units import milliseconds

PORT = 6881
SEED, DOWNLOADER = "seed", "downloader"
SEED_START_MS = 100

# The latency from a place to itself. No packet uses this path here.
_LOCAL_US = 1

# In networks with Tor, the first server and the first client have these addresses.
_ADDRESSES = {SEED: "100.10.0.1", DOWNLOADER: "100.20.0.1"}


def compose_peers(
    settings: PeersSettings, *, variant: PeerVariant, seed: int, engine: Engine, repeat: int = 1
) -> RunDirectory:
    """Compose one run of one variant.

    The settings alone define the network. ``seed`` and ``repeat`` determine the downloader's start
    time and the random numbers of the engine and its programs.
    """
    resolved = resolved_text(settings, variant.name, seed, repeat)
    seed = run_seed(seed, repeat)
    # The start time affects the results, because libtorrent counts seconds from its own start.
    spread_ms = round(milliseconds(settings.time.spread_s) * draw(seed, "peer start", DOWNLOADER))
    start_ms = milliseconds(settings.time.start_s) + spread_ms
    serve: tuple[str, ...] = ("seed",)
    fetch: tuple[str, ...] = ("fetch",)
    if settings.transfer.connects == "seed":
        both_running_ms = milliseconds(settings.time.start_s) + milliseconds(settings.time.spread_s)
        connect_ms = both_running_ms - SEED_START_MS
        serve += ("--to", f"{DOWNLOADER}:{PORT}", "--start-ms", str(connect_ms))
    else:
        fetch += ("--from", f"{SEED}:{PORT}")
    simulation = Simulation(
        network=_network(settings),
        processes={
            SEED: (_process(settings, variant, seed, SEED, SEED_START_MS, *serve),),
            DOWNLOADER: (_process(settings, variant, seed, DOWNLOADER, start_ms, *fetch),),
        },
        seed=seed,
        stop_ms=milliseconds(settings.time.stop_s),
        options=engine_options(settings, engine.name),
    )
    peers = PeerPair(
        seed=SEED,
        downloader=DOWNLOADER,
        rtt_s=settings.network.rtt_s,
        sample_s=settings.transfer.sample_s,
    )
    files = {
        PEERS: written(peers),
        RUN: written(RunClock(epoch_unix_s=EPOCH_UNIX_S, stop_s=settings.time.stop_s)),
        # Engines copy conf/ and the folders of the hosts. No program reads these files. They only
        # make sure that the folders exist.
        "conf/README": b"The engine's own files of this run.\n",
        **{f"{HOST_TEMPLATES}/{name}/.keep": b"" for name in _ADDRESSES},
    }
    files |= engine.configuration(simulation)
    return RunDirectory(
        files=files,
        simulation=simulation,
        expectations=dict.fromkeys(_ADDRESSES, variant.rule),
        tor_programs=(peer_program(variant.name),),
        resolved=resolved,
    )


def _network(settings: PeersSettings) -> Network:
    net = settings.network
    rates = {SEED: net.seed_bit_per_s, DOWNLOADER: net.downloader_bit_per_s}
    one_way_us = max(1, round(net.rtt_s * 1e6 / 2))
    return Network(
        hosts=tuple(Host(name, "peer", None, name, _ADDRESSES[name]) for name in _ADDRESSES),
        places=tuple(Place(name, name, rate, rate) for name, rate in rates.items()),
        latency_us={
            (SEED, SEED): _LOCAL_US,
            (SEED, DOWNLOADER): one_way_us,
            (DOWNLOADER, DOWNLOADER): _LOCAL_US,
        },
        packet_loss=net.packet_loss,
    )


def _process(
    settings: PeersSettings, variant: PeerVariant, seed: int, host: str, start_ms: int, *role: str
) -> Process:
    transfer = settings.transfer
    return Process(
        program=peer_program(variant.name),
        arguments=(
            *role,
            *("--transport", transfer.transport),
            *("--listen", host, "--port", str(PORT)),
            *("--size", str(transfer.size_bytes)),
            *("--piece", str(transfer.piece_bytes)),
            *("--content-seed", str(seed)),
            *("--sample-us", str(round(transfer.sample_s * 1e6))),
        ),
        start_ms=start_ms,
    )


HEADER = re.compile(r"onionlab-peer \d+ role=\w+ rule=([a-z-]+) ")


def verify_peer_logs(hosts: Path, rules: Mapping[str, str]) -> dict[str, int]:
    """Check each host's log below `hosts`. Return the number of hosts that logged each rule.

    rules: host -> its peer's request rule, by which libtorrent decides how many blocks to request.
    Raises RunRefusedError with the host's name if a log is empty or lacks its first line, or if a
    peer used another rule or was never connected.
    """
    for host, rule in rules.items():
        lines = read_logs(sorted((hosts / host).glob("libtorrent-peer-*.stdout")))
        if problem := _log_problem(lines, rule):
            raise RunRefusedError(f"{problem}: {host}", lines[-LAST_LINES:])
    return dict(Counter(f"request rule: {rule}" for rule in rules.values()))


def _log_problem(lines: list[str], rule: str) -> str | None:
    if not lines:
        return "the peer logged nothing"
    header = HEADER.match(lines[0])
    if header is None:
        return "the peer's log has no first line"
    if header[1] != rule:
        return f"the peer follows the rule {header[1]} instead of {rule}"
    if not any(line.split(" ", 2)[1:2] == ["connected"] for line in lines[1:]):
        return "the peer was never connected"
    return None
