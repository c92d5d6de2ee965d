"""Build the simulated network: a namespace for each host, and the links between hosts.

The path of a packet from one host to another::

    host A                        core                                     host B
    TCP -> tbf (A's upstream) -> veth -> program: which path? when is it due?
                                         -> fq: until it is due -> program: whose link?
                                         -> tbf + CoDel (B's downstream) -> veth -> TCP

The upstream bucket is in A's own namespace, so a full link keeps packets in A's sockets, and never
loses packets. Latency is not a property of a queue: a BPF program writes the arrival time into the
packet, and one queue for all paths releases each packet at exactly that time. Rates, bursts and
CoDel's two times are the same as in Shadow's model.

A simulation can start with a bootstrap, in which hosts connect without limits: the buckets are so
large and fill so fast that they delay nothing, and no path loses packets.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from onionlab.engines.uml import system
from onionlab.engines.uml.guest import bpf, netlink
from onionlab.engines.uml.guest.description import Description, GuestHost

NAMESPACES = Path("/run/netns")
_NAMES = Path("/run/utsns")
LINK = "eth0"
MTU_BYTES = 1500
CODEL_TARGET_US, CODEL_INTERVAL_US = 10_000, 100_000

# The limit of all queues. One queue never contains this many packets, so CoDel is the only cause of
# dropped packets in queues.
_UNLIMITED_PACKETS = 10_000_000
_UNLIMITED_PAGES = 2**40
_UNLIMITED_CONNECTIONS = 2**30
# The Ethernet header is not part of a packet's size, because the model has no Ethernet.
_LINK_HEADER_BYTES = 14
_TICKS_PER_S = 1000
# A rate and a burst that no simulated host reaches.
_NO_LIMIT_BYTES_PER_S, _NO_LIMIT_BURST_BYTES = 2**32 - 1, 2**31

_GATEWAY = "169.254.0.1"
# All links can have the same hardware address, because only a packet's receiver checks the address.
_HARDWARE_ADDRESS = bytes.fromhex("020000000001")
_DELAY_LINE, _DELAY_LINE_END = "delay0", "delay1"
_DELAY_BUCKETS_LOG = 12

# linux/pkt_cls.h
_TC_ACT_SHOT, _TC_ACT_STOLEN = 2, 4
# Offsets in struct __sk_buff (linux/bpf.h).
_SKB_MARK, _SKB_DATA, _SKB_DATA_END = 8, 76, 80
# Positions and lengths of a packet's headers; offsets in struct iphdr (linux/ip.h) and struct
# tcphdr (linux/tcp.h).
_IP = _LINK_HEADER_BYTES
_IP_BYTES, _TCP_BYTES = 20, 20
_TCP = _IP + _IP_BYTES
_IP_TOTAL_LENGTH, _IP_PROTOCOL, _IP_SOURCE, _IP_TARGET = 2, 9, 12, 16
_TCP_DATA_OFFSET = 12
_PATH = struct.Struct("=QI4x")
"""A value of the map of paths: the latency in ns and the threshold of `_loss_threshold`."""

# In tc's notation, these handles are 1:, 1:1 and 2:. On a host's link, 1: is the token bucket, 1:1
# is the bucket's class, and 2: is the queue in this class.
_FIRST_QDISC, _BELOW_FIRST_QDISC, _SECOND_QDISC = 0x00010000, 0x00010001, 0x00020000

_MACHINE_SETTINGS = {
    # All hosts share these limits, whose defaults depend on the guest's memory. Beyond the limits,
    # Linux reduces the windows of all connections, so a busy host would slow others down.
    "net/ipv4/tcp_mem": f"{_UNLIMITED_PAGES} {_UNLIMITED_PAGES} {_UNLIMITED_PAGES}",
    # All hosts share this limit of the number of connections that no longer belong to a program.
    "net/ipv4/tcp_max_orphans": f"{_UNLIMITED_CONNECTIONS}",
    # Each packet between two hosts passes through a queue with this limit.
    "net/core/netdev_max_backlog": f"{_UNLIMITED_PACKETS}",
    "net/core/netdev_budget": "100000",
    "net/core/netdev_budget_usecs": "1000000",
}
_HOST_SETTINGS = {
    # The limits of Shadow's buffers (Linux's defaults would depend on the guest's memory).
    "net/ipv4/tcp_rmem": "4096 131072 6291456",
    "net/ipv4/tcp_wmem": "4096 16384 4194304",
    "net/ipv4/ip_local_port_range": "10000 65001",
    # Linux's default also depends on the guest's memory. This is the default with at least 16 GiB.
    "net/ipv4/tcp_max_tw_buckets": "262144",
    "net/core/somaxconn": "4096",
}


class Links:
    """The links of a network. Their rate limits apply from the end of the bootstrap on."""

    def __init__(self, bootstrap_end_ms: int) -> None:
        self._bootstrap = bootstrap_end_ms > 0
        self._limits: list[tuple[netlink.Netlink, int, int]] = []
        self._sockets: list[netlink.Netlink] = []

    def add_bucket(self, link: netlink.Netlink, index: int, bit_per_s: int) -> None:
        """Add a token bucket to a link.

        link: the rtnetlink socket of the link's namespace. index: the link's number.
        """
        bytes_per_s = max(1, bit_per_s // 8)
        options = (
            netlink.token_bucket(_NO_LIMIT_BYTES_PER_S, _NO_LIMIT_BURST_BYTES)
            if self._bootstrap
            else netlink.token_bucket(bytes_per_s, burst_bytes(bytes_per_s))
        )
        link.set_qdisc(index, "tbf", options, handle=_FIRST_QDISC, overhead=-_LINK_HEADER_BYTES)
        if self._bootstrap:
            self._limits.append((link, index, bytes_per_s))

    def release(self, link: netlink.Netlink) -> None:
        """Close the socket of a namespace, unless the simulation starts with a bootstrap.

        With a bootstrap, `end_bootstrap` still needs the socket to set limits, and closes it then.
        """
        if self._bootstrap:
            self._sockets.append(link)
        else:
            link.close()

    def end_bootstrap(self) -> None:
        """Apply all limits from now on. Each bucket starts full, as in Shadow."""
        for link, index, bytes_per_s in self._limits:
            link.set_qdisc(
                index,
                "tbf",
                # If limit_packets were 0, the kernel would set the limit of the queue in the bucket
                # to 0 packets.
                netlink.token_bucket(
                    bytes_per_s, burst_bytes(bytes_per_s), limit_packets=_UNLIMITED_PACKETS
                ),
                handle=_FIRST_QDISC,
                overhead=-_LINK_HEADER_BYTES,
                change=True,
            )
        for link in self._sockets:
            link.close()
        self._limits.clear()
        self._sockets.clear()


def build_network(description: Description) -> Links:
    """Create all hosts and links.

    The caller's network namespace becomes the core, which connects all hosts.
    """
    links = Links(description.bootstrap_end_ms)
    for name, value in _MACHINE_SETTINGS.items():
        _set(name, value)
    _set("net/ipv4/tcp_congestion_control", description.congestion_control)
    for directory in (NAMESPACES, _NAMES):
        directory.mkdir(parents=True, exist_ok=True)
    core = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    no_host = os.open("/proc/self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    settings = {**_HOST_SETTINGS, "net/ipv4/tcp_congestion_control": description.congestion_control}
    for number, host in enumerate(description.hosts):
        _make_host(host, _core_link(number), core, settings, links)
        system.enter_namespace(core, system.CLONE_NEWNET)
        system.enter_namespace(no_host, system.CLONE_NEWUTS)
    _make_core(description, core, links)
    os.close(core)
    os.close(no_host)
    return links


def enter_host(name: str) -> None:
    """Move the calling process to a host's network namespace and UTS namespace (the host name).

    The random numbers that the kernel gives to programs depend on the UTS namespace.
    """
    for directory, kind in ((NAMESPACES, system.CLONE_NEWNET), (_NAMES, system.CLONE_NEWUTS)):
        descriptor = os.open(directory / name, os.O_RDONLY | os.O_CLOEXEC)
        system.enter_namespace(descriptor, kind)
        os.close(descriptor)


def burst_bytes(bytes_per_s: int) -> int:
    """Return the size of a link's bucket: the link's traffic in one millisecond plus one packet."""
    return max(1, bytes_per_s // _TICKS_PER_S) + MTU_BYTES


def _core_link(number: int) -> str:
    return f"h{number}"


def _make_host(
    host: GuestHost, core_link: str, core: int, settings: dict[str, str], links: Links
) -> None:
    system.unshare(system.CLONE_NEWNET | system.CLONE_NEWUTS)
    # The random numbers that the patched kernel gives to a program depend on the host name and on
    # the number of earlier requests for them in this namespace (configs/uml/patches, 0001).
    system.set_host_name(host.name)
    for directory, kind in ((NAMESPACES, "net"), (_NAMES, "uts")):
        handle = directory / host.name
        handle.touch()
        system.mount(f"/proc/self/ns/{kind}", str(handle), flags=system.MS_BIND)
    for name, value in settings.items():
        _set(name, value)
    link = netlink.Netlink()
    link.make_veth(LINK, core_link, peer_namespace=core, address=_HARDWARE_ADDRESS, mtu=MTU_BYTES)
    loopback = socket.if_nametoindex("lo")
    link.set_up(loopback)
    # Tor uses Nagle's algorithm: it sends a small piece only after earlier data is acknowledged. A
    # client that reads large pieces, such as the traffic driver, would acknowledge late.
    link.acknowledge_at_once(loopback, "127.0.0.1")
    index = socket.if_nametoindex(LINK)
    link.set_up(index, arp=False)
    link.add_address(index, host.address)
    link.add_neighbour(index, _GATEWAY, _HARDWARE_ADDRESS)
    link.add_default_route(index, _GATEWAY, host.address)
    links.add_bucket(link, index, host.up_bit_per_s)
    link.set_qdisc(
        index,
        "pfifo",
        netlink.packet_fifo(_UNLIMITED_PACKETS),
        parent=_BELOW_FIRST_QDISC,
        handle=_SECOND_QDISC,
    )
    links.release(link)


def _make_core(description: Description, core: int, links: Links) -> None:
    link = netlink.Netlink()
    link.make_veth(
        _DELAY_LINE, _DELAY_LINE_END, peer_namespace=core, address=_HARDWARE_ADDRESS, mtu=MTU_BYTES
    )
    delay_line, end = socket.if_nametoindex(_DELAY_LINE), socket.if_nametoindex(_DELAY_LINE_END)
    for index in (delay_line, end):
        link.set_up(index, arp=False)
    link.set_qdisc(
        delay_line,
        "fq",
        netlink.departure_queue(_UNLIMITED_PACKETS, _DELAY_BUCKETS_LOG),
        handle=_FIRST_QDISC,
    )
    indices = [
        socket.if_nametoindex(_core_link(number)) for number in range(len(description.hosts))
    ]
    program = bpf.load_filter(_path_program(description, indices, delay_line))
    link.add_ingress_hook(end)
    link.add_ingress_program(end, bpf.load_filter(_arrival_program()), "arrival")
    for host, index in zip(description.hosts, indices, strict=True):
        links.add_bucket(link, index, host.down_bit_per_s)
        link.set_qdisc(
            index,
            "codel",
            netlink.codel(CODEL_TARGET_US, CODEL_INTERVAL_US, _UNLIMITED_PACKETS),
            parent=_BELOW_FIRST_QDISC,
            handle=_SECOND_QDISC,
        )
        link.add_ingress_hook(index)
        link.add_ingress_program(index, program, "path")
        link.set_up(index, arp=False)
    links.release(link)


def _path_program(description: Description, indices: Sequence[int], delay_line: int) -> bytes:
    """Return the BPF program at the core's end of each host's link.

    The program looks up the path by the packet's two addresses, decides randomly whether the path
    loses the packet, and sends a copy with the arrival time to the delay line. It drops the
    original, because the original occupies the send buffer of the sender's socket.
    """
    places = len(description.latency_us)
    hosts = bpf.Map(bpf.BPF_MAP_TYPE_HASH, value_bytes=8, entries=len(description.hosts))
    for host, index in zip(description.hosts, indices, strict=True):
        hosts[socket.inet_aton(host.address)] = struct.pack("=II", host.place, index)
    paths = bpf.Map(bpf.BPF_MAP_TYPE_ARRAY, value_bytes=_PATH.size, entries=places * places)
    loses = False
    for source, row in enumerate(description.latency_us):
        for target, latency_us in enumerate(row):
            threshold = _loss_threshold(description.loss(source, target))
            loses = loses or threshold > 0
            paths[struct.pack("=I", source * places + target)] = _PATH.pack(
                latency_us * 1000, threshold
            )
    program = bpf.Assembler()
    program.register(bpf.BPF_MOV, 6, 1)
    program.load(bpf.BPF_W, 7, 6, _SKB_DATA)
    program.load(bpf.BPF_W, 8, 6, _SKB_DATA_END)
    program.register(bpf.BPF_MOV, 2, 7)
    program.value(bpf.BPF_ADD, 2, _IP + _IP_BYTES)
    program.jump_register(bpf.BPF_JGT, 2, 8, "drop")
    # The stack contains the sender's and the receiver's addresses, the number of the path, and the
    # payload's size, at negative offsets from register 10.
    program.load(bpf.BPF_W, 1, 7, _IP + _IP_SOURCE)
    program.store32(10, -4, 1)
    program.load(bpf.BPF_W, 1, 7, _IP + _IP_TARGET)
    program.store32(10, -8, 1)
    if loses:
        _add_payload_size(program)
    program.look_up(hosts, -4, "drop")
    program.load(bpf.BPF_W, 9, 0, 0)
    program.value(bpf.BPF_MUL, 9, places)
    program.look_up(hosts, -8, "drop")
    program.load(bpf.BPF_W, 1, 0, 0)
    program.register(bpf.BPF_ADD, 9, 1)
    program.load(bpf.BPF_W, 1, 0, 4)
    program.store32(6, _SKB_MARK, 1)
    program.store32(10, -12, 9)
    program.look_up(paths, -12, "drop")
    program.load(bpf.BPF_DW, 9, 0, 0)
    program.load(bpf.BPF_W, 8, 0, 8)
    program.call(bpf.BPF_FUNC_KTIME_GET_NS)
    program.register(bpf.BPF_MOV, 7, 0)
    if loses:
        _add_loss(program, _bootstrap_end_ns(description))
    program.label("send")
    program.register(bpf.BPF_ADD, 9, 7)
    program.register(bpf.BPF_MOV, 1, 6)
    program.register(bpf.BPF_MOV, 2, 9)
    program.value(bpf.BPF_MOV, 3, bpf.BPF_SKB_TSTAMP_DELIVERY_MONO)
    program.call(bpf.BPF_FUNC_SKB_SET_TSTAMP)
    program.register(bpf.BPF_MOV, 1, 6)
    program.value(bpf.BPF_MOV, 2, delay_line)
    program.value(bpf.BPF_MOV, 3, 0)
    program.call(bpf.BPF_FUNC_CLONE_REDIRECT)
    program.leave(_TC_ACT_STOLEN)
    program.label("drop")
    program.leave(_TC_ACT_SHOT)
    return program.bytes()


def _bootstrap_end_ns(description: Description) -> int:
    """Return the end of the bootstrap in ns of CLOCK_MONOTONIC, or 0 without a bootstrap."""
    if not description.bootstrap_end_ms:
        return 0
    epoch_ms = 1000 * description.epoch_unix_s
    since_ms = (
        time.clock_gettime_ns(time.CLOCK_MONOTONIC) - time.clock_gettime_ns(time.CLOCK_REALTIME)
    ) / 10**6
    # Round to whole milliseconds: the two clocks are read one after the other, so their difference
    # is not exact.
    return (round(since_ms + epoch_ms) + description.bootstrap_end_ms) * 10**6


def _loss_threshold(share: float) -> int:
    """Return a threshold: a packet is lost if a random integer in [0, 2**31) is less than it."""
    return min(round(share * 2**31) + 1, 2**31) if share > 0 else 0


def _add_payload_size(program: bpf.Assembler) -> None:
    """Add code that stores the size of a TCP packet's payload in bytes, or 0 for any other packet.

    Register 7 points to the start of the packet, register 8 to the end of its readable part. The
    size is stored at offset -16 of the stack.
    """
    program.value(bpf.BPF_MOV, 9, 0)
    program.register(bpf.BPF_MOV, 2, 7)
    program.value(bpf.BPF_ADD, 2, _TCP + _TCP_BYTES)
    program.jump_register(bpf.BPF_JGT, 2, 8, "payload")
    program.load(bpf.BPF_B, 1, 7, _IP + _IP_PROTOCOL)
    program.jump_value(bpf.BPF_JNE, 1, socket.IPPROTO_TCP, "payload")
    program.load(bpf.BPF_H, 9, 7, _IP + _IP_TOTAL_LENGTH)
    program.from_big_endian16(9)
    program.load(bpf.BPF_B, 1, 7, _IP)
    program.value(bpf.BPF_AND, 1, 0x0F)
    program.value(bpf.BPF_MUL, 1, 4)
    program.register(bpf.BPF_SUB, 9, 1)
    program.load(bpf.BPF_B, 1, 7, _TCP + _TCP_DATA_OFFSET)
    program.value(bpf.BPF_RSH, 1, 4)
    program.value(bpf.BPF_MUL, 1, 4)
    program.register(bpf.BPF_SUB, 9, 1)
    program.label("payload")
    program.store32(10, -16, 9)


def _add_loss(program: bpf.Assembler, bootstrap_end_ns: int) -> None:
    """Add code that drops a share of the TCP packets with payload, as Shadow does.

    Pure acknowledgements are never dropped. Register 7 contains the time in ns, register 8 the
    path's threshold. bootstrap_end_ns: see `_bootstrap_end_ns`.
    """
    if bootstrap_end_ns:
        program.value64(1, bootstrap_end_ns)
        program.jump_register(bpf.BPF_JGT, 1, 7, "send")
    program.jump_value(bpf.BPF_JEQ, 8, 0, "send")
    program.load(bpf.BPF_W, 1, 10, -16)
    program.jump_value(bpf.BPF_JEQ, 1, 0, "send")
    program.call(bpf.BPF_FUNC_GET_PRANDOM_U32)
    # Use only half of the random number's range, because the threshold must fit into 32 bits even
    # for a loss of 100%.
    program.value(bpf.BPF_RSH, 0, 1)
    program.jump_register(bpf.BPF_JLE, 8, 0, "send")
    program.leave(_TC_ACT_SHOT)


def _arrival_program() -> bytes:
    """Return the BPF program at the end of the delay line.

    The program sends each packet to the receiver's link, whose number is the packet's mark.
    """
    program = bpf.Assembler()
    program.load(bpf.BPF_W, 1, 1, _SKB_MARK)
    program.value(bpf.BPF_MOV, 2, 0)
    program.call(bpf.BPF_FUNC_REDIRECT)
    program.leave()
    return program.bytes()


def _set(name: str, value: str) -> None:
    Path("/proc/sys", name).write_text(value)
