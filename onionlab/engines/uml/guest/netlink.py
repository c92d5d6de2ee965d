"""The few requests to the kernel's network configuration (rtnetlink) that a network needs.

One process makes hundreds of hosts, so this speaks to the kernel itself instead of starting `ip`
and `tc` thousands of times; and the guest then needs no iproute2 on the machine. Message formats:
rtnetlink(7), linux/rtnetlink.h, linux/pkt_sched.h.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable

ATTRIBUTE_NESTED = 0x8000

_NLMSG_ERROR = 2
_REQUEST_ACK = 0x01 | 0x04
_CREATE = 0x400 | 0x200  # NLM_F_CREATE | NLM_F_EXCL
_REPLACE = 0x100  # NLM_F_REPLACE

_RTM_NEWLINK, _RTM_NEWADDR, _RTM_NEWROUTE, _RTM_NEWNEIGH = 16, 20, 24, 28
_RTM_NEWQDISC, _RTM_NEWTFILTER = 36, 44

_IFLA_GSO_MAX_SEGS = 40
_IFF_UP, _IFF_NOARP = 0x1, 0x80
_NUD_PERMANENT = 0x80
_TC_H_ROOT = 0xFFFFFFFF
_TC_H_CLSACT = 0xFFFFFFF1
_TC_H_INGRESS_HOOK = 0xFFFFFFF2
_ETH_P_ALL = 0x0003
_LINKLAYER_ETHERNET = 1
_FLAG_DIRECT_ACTION = 1

Attributes = Iterable[tuple[int, bytes]]


class NetlinkError(OSError):
    """The kernel refused a request."""


def u32(value: int) -> bytes:
    """Return an attribute's value of 32 bits."""
    return struct.pack("=I", value)


def text(value: str) -> bytes:
    """Return an attribute's value that is a string."""
    return value.encode() + b"\0"


def pack(attributes: Attributes) -> bytes:
    """Return attributes one after the other, each padded to four bytes."""
    parts = []
    for kind, value in attributes:
        length = len(value) + 4
        parts.append(struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4))
    return b"".join(parts)


class Netlink:
    """A socket to the network namespace in which it was made."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self._sequence = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def make_veth(
        self, name: str, peer: str, *, peer_namespace: int, address: bytes, mtu: int
    ) -> None:
        """Make two ends of a cable: `name` here, `peer` in the namespace of that descriptor.

        address: the hardware address, the same for both ends. No more than one packet is handed to
        a link at a time (TCP would else send bundles of them), so that buckets and queues see what
        a network would carry.
        """
        end = [(1, address), (4, u32(mtu)), (_IFLA_GSO_MAX_SEGS, u32(1))]
        peer_end = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + pack(
            [(3, text(peer)), (28, u32(peer_namespace)), *end]
        )
        data = pack([(1 | ATTRIBUTE_NESTED, peer_end)])
        info = pack([(1, text("veth")), (2 | ATTRIBUTE_NESTED, data)])
        self._request(
            _RTM_NEWLINK,
            struct.pack("=BxHiII", 0, 0, 0, 0, 0),
            [(3, text(name)), *end, (18 | ATTRIBUTE_NESTED, info)],
            create=True,
        )

    def set_up(self, index: int, *, arp: bool = True) -> None:
        """Switch a link on; arp: whether it asks for hardware addresses."""
        flags = _IFF_UP | (0 if arp else _IFF_NOARP)
        self._request(
            _RTM_NEWLINK, struct.pack("=BxHiII", 0, 0, index, flags, _IFF_UP | _IFF_NOARP)
        )

    def add_address(self, index: int, address: str) -> None:
        """Give a link an IPv4 address, alone in its subnet."""
        raw = socket.inet_aton(address)
        self._request(
            _RTM_NEWADDR,
            struct.pack("=BBBBI", socket.AF_INET, 32, 0, 0, index),
            [(2, raw), (1, raw)],
            create=True,
        )

    def add_default_route(self, index: int, gateway: str, source: str) -> None:
        """Send everything to `gateway`, which needs no route of its own."""
        onlink = 4
        self._request(
            _RTM_NEWROUTE,
            struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 4, 0, 1, onlink),
            [
                (4, u32(index)),
                (5, socket.inet_aton(gateway)),
                (7, socket.inet_aton(source)),
            ],
            create=True,
        )

    def acknowledge_at_once(self, index: int, address: str) -> None:
        """Let TCP acknowledge each segment from a local address without delay (`quickack 1`)."""
        raw = socket.inet_aton(address)
        metrics = pack([(15, u32(1))])
        self._request(
            _RTM_NEWROUTE,
            # The kernel's own route: table local, protocol kernel, scope host, type local.
            struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 0, 0, 255, 2, 254, 2, 0),
            [(1, raw), (4, u32(index)), (7, raw), (8 | ATTRIBUTE_NESTED, metrics)],
            flags=_REPLACE,
        )

    def add_neighbour(self, index: int, address: str, hardware_address: bytes) -> None:
        """Say for good which hardware address an IPv4 address has."""
        self._request(
            _RTM_NEWNEIGH,
            struct.pack("=BxxxiHBB", socket.AF_INET, index, _NUD_PERMANENT, 0, 0),
            [(1, socket.inet_aton(address)), (2, hardware_address)],
            create=True,
        )

    def add_qdisc(
        self,
        index: int,
        kind: str,
        options: bytes,
        *,
        parent: int = _TC_H_ROOT,
        handle: int,
        overhead: int = 0,
    ) -> None:
        """Add a queueing discipline. overhead: bytes added to each packet's size (or taken off)."""
        attributes = [(1, text(kind))]
        if options:
            attributes.append((2 | ATTRIBUTE_NESTED, options))
        if overhead:
            base = struct.pack("=BBhiIIII", 0, 0, 0, overhead, _LINKLAYER_ETHERNET, 0, 0, 0)
            attributes.append((8 | ATTRIBUTE_NESTED, pack([(1, base)])))
        self._request(
            _RTM_NEWQDISC,
            struct.pack("=BxxxiIII", 0, index, handle, parent, 0),
            attributes,
            create=True,
        )

    def add_ingress_hook(self, index: int) -> None:
        """Let filters see what comes in on a link."""
        self.add_qdisc(index, "clsact", b"", parent=_TC_H_CLSACT, handle=0xFFFF0000)

    def add_ingress_program(self, index: int, program: int, name: str) -> None:
        """Run a loaded BPF program, which decides itself, on each packet that comes in."""
        options = pack([(6, u32(program)), (7, text(name)), (8, u32(_FLAG_DIRECT_ACTION))])
        info = 1 << 16 | socket.htons(_ETH_P_ALL)
        self._request(
            _RTM_NEWTFILTER,
            struct.pack("=BxxxiIII", 0, index, 1, _TC_H_INGRESS_HOOK, info),
            [(1, text("bpf")), (2 | ATTRIBUTE_NESTED, options)],
            create=True,
        )

    def _request(
        self,
        kind: int,
        header: bytes,
        attributes: Attributes = (),
        *,
        create: bool = False,
        flags: int = 0,
    ) -> None:
        body = header + b"\0" * (-len(header) % 4) + pack(attributes)
        self._sequence += 1
        flags |= _REQUEST_ACK | (_CREATE if create else 0)
        self._socket.send(
            struct.pack("=IHHII", len(body) + 16, kind, flags, self._sequence, 0) + body
        )
        reply = self._socket.recv(65536)
        reply_kind = struct.unpack_from("=H", reply, 4)[0]
        code = struct.unpack_from("=i", reply, 16)[0] if reply_kind == _NLMSG_ERROR else 0
        if code:
            raise NetlinkError(-code, f"rtnetlink request {kind}: {os.strerror(-code)}")


def token_bucket(rate_bytes_per_s: int, burst_bytes: int) -> bytes:
    """Return the options of a `tbf` without a queue of its own (add one at parent HANDLE:1)."""
    rate = struct.pack("=BBHhHI", 0, _LINKLAYER_ETHERNET, 0, 0, 0, rate_bytes_per_s)
    peak = struct.pack("=BBHhHI", 0, 0, 0, 0, 0, 0)
    return pack([(1, rate + peak + struct.pack("=III", 0, 0, 0)), (6, u32(burst_bytes))])


def codel(target_us: int, interval_us: int, limit_packets: int) -> bytes:
    """Return the options of a `codel` queue."""
    return pack([(1, u32(target_us)), (2, u32(limit_packets)), (3, u32(interval_us)), (4, u32(0))])


def packet_fifo(limit_packets: int) -> bytes:
    """Return the options of a `pfifo` queue: the bare structure, not attributes."""
    return u32(limit_packets)


def departure_queue(limit_packets: int, buckets_log: int) -> bytes:
    """Return the options of an `fq` queue that holds each packet until its own departure time.

    Neither pacing nor coalescing of timers; packets of different flows never share a queue in it.
    """
    return pack(
        [
            (1, u32(limit_packets)),
            (2, u32(limit_packets)),
            (5, u32(0)),
            (8, u32(buckets_log)),
            (10, u32(0xFFFFFFFF)),
            (13, u32(0)),
        ]
    )
