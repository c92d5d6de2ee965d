"""What a run's cost follows from, as far as its settings tell before it is made.

The load has no coefficient that is fitted: clients get no more than they ask for, and together no
more than the narrowest position of their circuits carries.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from onionlab.experiment import AnySettings, Settings
from onionlab.experiment.peers import PeersSettings
from onionlab.experiment.schema import TrafficClass
from onionlab.experiment.tornettools import PERF, TornetSettings
from onionlab.experiment.values import Traced
from onionlab.network.geography import Geography, load_geography
from onionlab.rundir.compose import mean_capacity_bit_per_s
from onionlab.runs.bench import TOR_CC_ALG
from onionlab.runs.costs.markov_load import endless_streams_of, load_of_class, tornet_load

CELL_PAYLOAD_BYTES = 498
CELL_WIRE_BYTES = 514 * 1.05
"""A cell on a link: 514 bytes (tor-spec, section 3), and the headers of TLS, TCP and IP."""
STREAM_WINDOW_BYTES = 500 * CELL_PAYLOAD_BYTES
"""That a stream may have under way (tor-spec, section 7.4)."""
VEGAS_WINDOW_BYTES = 1.5 * 124 * CELL_PAYLOAD_BYTES
"""The same with congestion control, in the mean of a download: it begins with 124 cells (proposal
324, cc_cwnd_init) and grows. Half as much again is what training runs carried."""
RTTS_TO_FIRST_BYTE = 2
"""Through the whole circuit: BEGIN and CONNECTED, then the request and the answer."""
LEAST_RTT_S = 0.001
LEAST_BYTES_PER_S = 1.0
LEAST_INTERVAL_S = 0.001
RELAYS_ON_PATH = 3
FIXED_WINDOWS = 0
"""Of the consensus parameter cc_alg."""
STALLING_BYTES_PER_S2 = 1325.0
"""What a position has to carry a second, for each second of load, so that 1 - 1/e of what it could
carry gets through on Shadow: fitted to what clients got in training runs (root mean square of the
share's error: 0.08)."""
UTP_PACKET_BYTES = 1400
TICKS_PER_S = 1000
"""Shadow refills a link's token bucket, and the guest's kernel looks at its timers, so often."""
PEERS = 2
"""Each makes the torrent of all content, whatever is transferred (libtorrent-patches/peer)."""
LEGS = 2
"""Of a Conflux set."""
PERF_PAUSE_S = 60.0
PERF_BYTES_PER_S = (12 * 50 * 2**10 + 2 * 2**20 + 5 * 2**20) / 15 / PERF_PAUSE_S
"""A perf client of tornettools fetches one of three sizes a minute, with weights 12, 2 and 1."""
LEAST_STREAMS_PER_S = 1e-6
"""Of a client whose models never begin one."""
PATH = ("client", "guard", "middle", "exit", "server")


@dataclass(frozen=True)
class Features:
    """What one run is, as far as its cost follows from it.

    Attributes:
        hosts: Simulated hosts.
        tors: Processes of Tor: authorities, relays and clients.
        tor_s: Simulated seconds, summed over them.
        carried_bytes: What clients get through Tor, in payload.
        stalling_bytes: Of it, what they do not get on an engine whose TCP stalls.
        paced_bytes: Of what flows on any engine, what goes at the pace of relays' links, packet by
            packet, and not in the portions of Tor's BandwidthRate.
        unbundled_bytes: Of what flows on any engine, what Tor's Vanilla scheduler writes, which
            bundles no cells.
        crowded_bytes: What flows on any engine, times the logarithm of one more than the streams
            that are open at a time, in the mean of the load: a cell is chosen among so many.
        kist_rounds: Rounds of relays' schedulers while clients ask, KIST's, which asks the kernel
            about each connection in each.
        streams: Downloads through Tor.
        directory_entries: Descriptors of relays that the Tors hold, together.
        traced_bytes: Payload that passes relays which write a cell trace, once for each of them.
        peer_bytes: What libtorrent's peers send to each other without Tor.
        peer_wakes: Moments at which packets of theirs come, at most one a tick.
        hashed_bytes: Content of torrents that peers make and hash before they begin.
        log_lines: Lines that grow with time: a client's heartbeats, a peer's samples.
        verbose_bytes: What clients get whose log tells of every activity.
        endless_streams: Open streams at the end, of those that only a timeout ends.
    """

    hosts: float = 0.0
    tors: float = 0.0
    tor_s: float = 0.0
    carried_bytes: float = 0.0
    stalling_bytes: float = 0.0
    paced_bytes: float = 0.0
    unbundled_bytes: float = 0.0
    crowded_bytes: float = 0.0
    kist_rounds: float = 0.0
    streams: float = 0.0
    directory_entries: float = 0.0
    traced_bytes: float = 0.0
    peer_bytes: float = 0.0
    peer_wakes: float = 0.0
    hashed_bytes: float = 0.0
    log_lines: float = 0.0
    verbose_bytes: float = 0.0
    endless_streams: float = 0.0

    @property
    def flowing_bytes(self) -> float:
        """Return the bytes that clients receive with the TCP of any engine."""
        return self.carried_bytes - self.stalling_bytes


FEATURES = tuple(field.name for field in fields(Features) if field.name != "endless_streams")
"""The features that the model is fitted to: no measured run has endless streams."""


def features_of(root: Path, settings: AnySettings) -> Features:
    """Return what runs with these settings have in common."""
    if isinstance(settings, Settings):
        return _of_network(root, settings)
    if isinstance(settings, TornetSettings):
        return _of_tornet(root, settings)
    return _of_peers(settings)


def _of_tornet(root: Path, settings: TornetSettings) -> Features:
    """An imported network: what its clients ask for in the mean, as far as its relays carry it."""
    facts, stop_s = settings.facts, settings.time.stop_s
    loaded_s = max(0.0, stop_s - facts.bootstrap_end_s)
    load = tornet_load(root, settings.network.name)
    share = settings.traffic.markov_clients
    perf = sum(n for name, n in facts.classes.items() if name.startswith(PERF))
    asked = share * load.bytes_per_s + perf * PERF_BYTES_PER_S
    carried = loaded_s * min(asked, load.relays_bytes_per_s / RELAYS_ON_PATH)
    return Features(
        hosts=settings.hosts,
        tors=settings.tors,
        tor_s=settings.tors * stop_s,
        carried_bytes=carried,
        paced_bytes=carried,
        streams=loaded_s * (share * load.streams_per_s + perf / PERF_PAUSE_S),
        directory_entries=settings.tors * sum(facts.relays.values()),
        traced_bytes=carried
        * RELAYS_ON_PATH
        * _traced_share(
            settings.tor.trace,
            {role: n for role, n in facts.relays.items() if role != "authority"},
        ),
        log_lines=settings.tors * stop_s,
    )


def _of_peers(settings: PeersSettings) -> Features:
    """Two peers: the narrower link is full while they transfer."""
    network, transfer, time = settings.network, settings.transfer, settings.time
    narrow = min(network.seed_bit_per_s, network.downloader_bit_per_s) / 8
    sent = min(transfer.size_bytes, narrow * time.measured_s)
    return Features(
        hosts=PEERS,
        peer_bytes=sent,
        peer_wakes=min(sent / UTP_PACKET_BYTES, TICKS_PER_S * time.measured_s),
        hashed_bytes=PEERS * transfer.size_bytes,
        log_lines=time.measured_s / transfer.sample_s,
    )


def _of_network(root: Path, settings: Settings) -> Features:
    carried = carried_bytes(root, settings)
    total = sum(carried.values())
    flowing = total * flowing_share(root, settings)
    tors = settings.host_count - settings.network.servers.count
    return Features(
        hosts=settings.host_count,
        tors=tors,
        tor_s=tors * settings.time.stop_s,
        carried_bytes=total,
        stalling_bytes=total - flowing,
        paced_bytes=flowing if _is_paced_by_links(root, settings) else 0.0,
        unbundled_bytes=flowing if settings.tor.scheduler.name == "Vanilla" else 0.0,
        crowded_bytes=flowing * math.log1p(_open_streams(root, settings)),
        kist_rounds=_kist_rounds(settings),
        streams=sum(
            carried[name] / _stream_bytes(root, entry) for name, entry in settings.traffic.items()
        ),
        directory_entries=tors * (settings.network.relays.count + settings.network.authorities),
        traced_bytes=total
        * RELAYS_ON_PATH
        * _traced_share(
            settings.tor.trace,
            {role: entry.count for role, entry in settings.network.relays.items()},
        ),
        log_lines=settings.client_count * settings.time.stop_s / settings.engine.tgen.heartbeat_s,
        verbose_bytes=total if settings.engine.tgen.loglevel == "info" else 0.0,
        endless_streams=endless_streams_of(root, settings),
    )


@dataclass(frozen=True)
class _Asking:
    """A class of clients as it loads the network.

    streams: that its clients may have open; request_bytes: of one download; idle_s: from the end of
    one download to the first byte of the next; most_bytes_per_s: of one stream, whatever the
    others; loaded_s: how long they ask; most_bytes: where they stop.
    """

    streams: int
    request_bytes: int
    idle_s: float
    most_bytes_per_s: float
    loaded_s: float
    most_bytes: float

    def bytes_per_s(self, stream_bytes_per_s: float) -> float:
        """What the class gets where no stream gets more than that."""
        taking_s = self._taking_s(stream_bytes_per_s)
        return self.streams * self.request_bytes / (self.idle_s + taking_s)

    def open_streams(self, stream_bytes_per_s: float) -> float:
        """How many of its streams get something at a time, in the mean, where none gets more."""
        taking_s = self._taking_s(stream_bytes_per_s)
        return self.streams * taking_s / (self.idle_s + taking_s)

    def _taking_s(self, stream_bytes_per_s: float) -> float:
        return self.request_bytes / min(stream_bytes_per_s, self.most_bytes_per_s)


def carried_bytes(root: Path, settings: Settings) -> dict[str, float]:
    """What the clients of each class get in a run, in bytes of payload.

    Their downloads share what the network carries: all of them get what they ask for, or each open
    stream gets the same, so that together they fill it.
    """
    asking = _all_asking(root, settings)
    rate = _fair_bytes_per_s(list(asking.values()), capacity_bytes_per_s(root, settings))
    return dict.fromkeys(settings.traffic, 0.0) | {
        name: min(one.most_bytes, one.bytes_per_s(rate) * one.loaded_s)
        for name, one in asking.items()
    }


def _open_streams(root: Path, settings: Settings) -> float:
    """Streams that get something at a time while clients ask, in the mean."""
    asking = list(_all_asking(root, settings).values())
    rate = _fair_bytes_per_s(asking, capacity_bytes_per_s(root, settings))
    return sum(one.open_streams(rate) for one in asking)


def _all_asking(root: Path, settings: Settings) -> dict[str, _Asking]:
    """Each class that has clients, by name."""
    geography = load_geography(root, settings.network.geography)
    return {
        name: _asking(root, settings, entry, geography)
        for name, entry in settings.traffic.items()
        if entry.count
    }


def _fair_bytes_per_s(asking: Sequence[_Asking], capacity: float) -> float:
    """The rate of a stream with which all together get no more than the capacity."""
    high = max((one.most_bytes_per_s for one in asking), default=1.0)
    if sum(one.bytes_per_s(high) for one in asking) <= capacity:
        return high
    low = high * 1e-9
    for _ in range(60):
        middle = math.sqrt(low * high)
        if sum(one.bytes_per_s(middle) for one in asking) > capacity:
            high = middle
        else:
            low = middle
    return low


def _asking(root: Path, settings: Settings, entry: TrafficClass, geography: Geography) -> _Asking:
    rtt_s = circuit_rtt_s(geography)
    pauses = entry.pause.times_s
    once = entry.repeat == "once"
    pause_s = sum(pauses) / len(pauses) if pauses and not once else 0.0
    streams = entry.count * entry.streams
    if entry.is_load:
        pause_s = 1 / max(load_of_class(root, entry).streams_per_s, LEAST_STREAMS_PER_S)
    time = settings.time
    window = STREAM_WINDOW_BYTES if _has_fixed_windows(settings) else VEGAS_WINDOW_BYTES
    access = _access_bytes_per_s(settings, geography) / entry.streams
    return _Asking(
        streams=streams,
        request_bytes=_stream_bytes(root, entry),
        idle_s=RTTS_TO_FIRST_BYTE * rtt_s + pause_s,
        most_bytes_per_s=max(LEAST_BYTES_PER_S, min(window / max(rtt_s, LEAST_RTT_S), access)),
        loaded_s=max(
            0.0,
            time.stop_s - time.bootstrap_s - entry.start.after_s - entry.start.spread_s / 2,
        ),
        most_bytes=float(streams * _stream_bytes(root, entry)) if once else math.inf,
    )


def _stream_bytes(root: Path, entry: TrafficClass) -> int:
    """Payload of one download; of a client of Markov models in the mean."""
    if entry.request_bytes is None:
        return max(1, round(load_of_class(root, entry).stream_bytes))
    return entry.request_bytes


def _access_bytes_per_s(settings: Settings, geography: Geography) -> float:
    """A client's link downwards, in the mean of its places."""
    if settings.network.clients.bandwidth_bit_per_s is not None:
        return settings.network.clients.bandwidth_bit_per_s / 8
    down = {region: rates[1] / 8 for region, rates in geography.client_bit_per_s.items()}
    return sum(share * down[region] for region, share in _shares(geography, "client").items())


def circuit_rtt_s(geography: Geography) -> float:
    """Round-trip time from a client through three relays to a server, in the mean of places."""
    return sum(_leg_s(geography, a, b) for a, b in itertools.pairwise(PATH))


def _leg_s(geography: Geography, a: str, b: str) -> float:
    return sum(
        share_a * share_b * geography.rtt_ms[region_a, region_b] / 1000
        for region_a, share_a in _shares(geography, a).items()
        for region_b, share_b in _shares(geography, b).items()
    )


def _shares(geography: Geography, kind: str) -> dict[str, float]:
    """Share of a kind of hosts in each region; empty where the geography has no place for it."""
    weights = geography.places.get(kind, {})
    total = sum(weights.values())
    return {region: weight / total for region, weight in weights.items()} if total else {}


def capacity_bytes_per_s(root: Path, settings: Settings) -> float:
    """Payload that the network carries at most: its narrowest position, in bytes a second.

    Every circuit takes a guard, a middle and an exit; a relay of two roles shares what it has.
    """
    carries = {
        role: _role_bytes_per_s(root, settings, role) for role, _ in settings.network.relays.items()
    }
    payload = CELL_PAYLOAD_BYTES / CELL_WIRE_BYTES
    return _narrowest(carries, _keeps_to_middles(settings)) * payload


def _narrowest(carries: Mapping[str, float], keeps_to_middles: bool) -> float:
    """What the narrowest position carries, of what the relays of each role carry together."""
    guards = carries["guard"] + carries["exitguard"]
    exits = carries["exit"] + carries["exitguard"]
    ends = carries["guard"] + carries["exit"] + carries["exitguard"]
    limits = [guards, exits, ends / 2]
    if carries["middle"] and keeps_to_middles:
        limits.append(carries["middle"])
    else:
        limits.append((ends + carries["middle"]) / 3)
    return min(limits)


def flowing_share(root: Path, settings: Settings) -> float:
    """Share of what clients would get that they do get where retransmission timers only grow.

    A link that is full drops packets, and what is not repaired by duplicate acknowledgements waits
    for the timer: the more often, the less a link carries at a time, and the longer each time, the
    longer the run. Where Tor's own limit is the lower one nothing is dropped.
    """
    links = {
        role: math.inf
        if _limits_itself(root, settings, role)
        else _role_bytes_per_s(root, settings, role)
        for role, _ in settings.network.relays.items()
    }
    # A stream that is split over two circuits waits for the slower one.
    rate = _narrowest(links, settings.network.middle_hops == "dedicated")
    loaded_s = settings.time.stop_s - settings.time.bootstrap_s
    return -math.expm1(-rate / (STALLING_BYTES_PER_S2 * max(loaded_s, 1.0)))


def _is_paced_by_links(root: Path, settings: Settings) -> bool:
    """Whether links are what cells wait for, and are filled as often as they have room.

    Then packets go one by one. A relay that waits for its BandwidthRate sends many at a time, and
    its engine has less to do for each.
    """
    roles = [role for role, entry in settings.network.relays.items() if entry.count]
    return not all(_limits_itself(root, settings, role) for role in roles)


def _kist_rounds(settings: Settings) -> float:
    scheduler, time = settings.tor.scheduler, settings.time
    if scheduler.name != "KIST":
        return 0.0
    # At an interval of 0 each event is a round: nobody knows how many.
    interval_s = max(scheduler.run_interval_s, LEAST_INTERVAL_S)
    return settings.network.relays.count * (time.stop_s - time.bootstrap_s) / interval_s


def _limits_itself(root: Path, settings: Settings, role: str) -> bool:
    """Whether it is Tor's BandwidthRate that limits the relays of a role, and not their links."""
    network = settings.network
    entry = dict(network.relays.items())[role]
    if not entry.count:
        return False
    if network.limited_by == "bandwidth-rate":
        return True
    own = entry.bandwidth_rate_bit_per_s
    return own is not None and own < _link_bit_per_s(root, settings, role)


def _keeps_to_middles(settings: Settings) -> bool:
    """Whether middles alone are in the middle of circuits.

    Tor of today splits a stream over two circuits without a common relay where congestion control
    is on (Conflux, proposal 329): the second one needs a second middle.
    """
    if settings.network.middle_hops != "dedicated":
        return False
    torrc = settings.tor.torrc
    off = {**torrc.all, **torrc.client}.get("ConfluxEnabled") == ("0",)
    enough = settings.network.relays.middle.count >= LEGS
    return _has_fixed_windows(settings) or off or enough


def _has_fixed_windows(settings: Settings) -> bool:
    """Whether Tor runs without its congestion control of today."""
    return settings.tor.consensus_params.get("cc_alg", TOR_CC_ALG) == FIXED_WINDOWS


def _role_bytes_per_s(root: Path, settings: Settings, role: str) -> float:
    entry = dict(settings.network.relays.items())[role]
    if not entry.count:
        return 0.0
    each = _link_bit_per_s(root, settings, role)
    if entry.bandwidth_rate_bit_per_s is not None:
        each = min(each, entry.bandwidth_rate_bit_per_s)
    return entry.count * each / 8


def _link_bit_per_s(root: Path, settings: Settings, role: str) -> float:
    """What a relay of a role carries in the mean, by what it is drawn from."""
    network = settings.network
    entry = dict(network.relays.items())[role]
    return mean_capacity_bit_per_s(root, network, entry) * network.capacity_total_factor(role)


def _traced_share(trace: Traced, relays: Mapping[str, int]) -> float:
    """Share of the relays that write a cell trace; relays: how many there are of each role."""
    count = sum(relays.values())
    if trace.where == "none" or not count:
        return 0.0
    if trace.where == "roles":
        return sum(n for role, n in relays.items() if role in trace.names) / count
    if trace.where == "hosts":
        return len(trace.names) / count
    return trace.fraction
