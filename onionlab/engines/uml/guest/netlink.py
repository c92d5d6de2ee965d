"""The rtnetlink requests that configure the kernel's network.

One process creates hundreds of hosts. It sends requests to the kernel itself, because otherwise it
would have to start `ip` and `tc` thousands of times. The guest thus does not need iproute2 either.
Message formats: rtnetlink(7), linux/rtnetlink.h and linux/pkt_sched.h.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable

# The comment above each group of constants names the C header that defines their names and values.

# linux/netlink.h
_NLMSG_ERROR = 2
_NLM_F_REQUEST, _NLM_F_ACK = 0x01, 0x04
_NLM_F_REPLACE, _NLM_F_EXCL, _NLM_F_CREATE = 0x100, 0x200, 0x400
_NLA_F_NESTED = 0x8000

# linux/rtnetlink.h
_RTM_NEWLINK, _RTM_NEWADDR, _RTM_NEWROUTE, _RTM_NEWNEIGH = 16, 20, 24, 28
_RTM_NEWQDISC, _RTM_NEWTFILTER = 36, 44
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC, _RTA_METRICS = 1, 4, 5, 7, 8
_RTAX_QUICKACK = 15
_RT_TABLE_MAIN, _RT_TABLE_LOCAL = 254, 255
_RTPROT_KERNEL, _RTPROT_STATIC = 2, 4
_RT_SCOPE_UNIVERSE, _RT_SCOPE_HOST = 0, 254
_RTN_UNICAST, _RTN_LOCAL = 1, 2
_RTNH_F_ONLINK = 4
_TCA_KIND, _TCA_OPTIONS, _TCA_STAB = 1, 2, 8

# linux/if.h
_IFF_UP, _IFF_NOARP = 0x1, 0x80

# linux/if_link.h
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO = 1, 3, 4, 18
_IFLA_NET_NS_FD, _IFLA_GSO_MAX_SEGS = 28, 40
_IFLA_INFO_KIND, _IFLA_INFO_DATA = 1, 2

# linux/veth.h
_VETH_INFO_PEER = 1

# linux/if_addr.h
_IFA_ADDRESS, _IFA_LOCAL = 1, 2

# linux/neighbour.h
_NDA_DST, _NDA_LLADDR = 1, 2
_NUD_PERMANENT = 0x80

# linux/if_ether.h
_ETH_P_ALL = 0x0003

# linux/pkt_sched.h
_TC_H_ROOT, _TC_H_CLSACT, _TC_H_MAJ_MASK = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFF0000
_TC_LINKLAYER_ETHERNET = 1
_TCA_STAB_BASE = 1
_TCA_TBF_PARMS, _TCA_TBF_RATE64, _TCA_TBF_BURST = 1, 4, 6
_TCA_CODEL_TARGET, _TCA_CODEL_LIMIT, _TCA_CODEL_INTERVAL, _TCA_CODEL_ECN = 1, 2, 3, 4
_TCA_FQ_PLIMIT, _TCA_FQ_FLOW_PLIMIT, _TCA_FQ_RATE_ENABLE = 1, 2, 5
_TCA_FQ_BUCKETS_LOG, _TCA_FQ_ORPHAN_MASK, _TCA_FQ_TIMER_SLACK = 8, 10, 13

# linux/pkt_cls.h
_TC_H_MIN_INGRESS = 0xFFF2
_TCA_BPF_FD, _TCA_BPF_NAME, _TCA_BPF_FLAGS = 6, 7, 8
_TCA_BPF_FLAG_ACT_DIRECT = 1

_NLMSGHDR = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence number, port."""

_IPV4_BITS = 32
_FILTER_HANDLE = _FILTER_PRIORITY = 1

Attribute = tuple[int, bytes]


def _u32(value: int) -> bytes:
    return struct.pack("=I", value)


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _pack(attributes: Iterable[Attribute]) -> bytes:
    """Concatenate attributes, each padded to a multiple of four bytes."""
    parts = []
    for kind, value in attributes:
        length = len(value) + 4
        parts.append(struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4))
    return b"".join(parts)


def _nested(kind: int, attributes: bytes) -> Attribute:
    """Return an attribute of kind `kind` whose value is packed attributes or a structure."""
    return kind | _NLA_F_NESTED, attributes


class Netlink:
    """A socket to the network namespace in which it was created."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def make_veth(
        self, name: str, peer: str, *, peer_namespace: int, address: bytes, mtu: int
    ) -> None:
        """Create a veth pair: `name` in this socket's namespace, `peer` in another namespace.

        peer_namespace: the descriptor of the other namespace. address: the hardware address of both
        ends. A link transmits single packets, so that buckets and queues handle the same packets as
        in a real network. By default, TCP would pass bundles of packets to the link.
        """
        end = [(_IFLA_ADDRESS, address), (_IFLA_MTU, _u32(mtu)), (_IFLA_GSO_MAX_SEGS, _u32(1))]
        peer_end = _link(0) + _pack(
            [(_IFLA_IFNAME, _text(peer)), (_IFLA_NET_NS_FD, _u32(peer_namespace)), *end]
        )
        info = [
            (_IFLA_INFO_KIND, _text("veth")),
            _nested(_IFLA_INFO_DATA, _pack([_nested(_VETH_INFO_PEER, peer_end)])),
        ]
        self._request(
            _RTM_NEWLINK,
            _link(0),
            [(_IFLA_IFNAME, _text(name)), *end, _nested(_IFLA_LINKINFO, _pack(info))],
            create=True,
        )

    def set_up(self, index: int, *, arp: bool = True) -> None:
        """Enable a link. index: its number. arp: whether it requests hardware addresses."""
        flags = _IFF_UP | (0 if arp else _IFF_NOARP)
        self._request(_RTM_NEWLINK, _link(index, flags, _IFF_UP | _IFF_NOARP))

    def add_address(self, index: int, address: str) -> None:
        """Assign an IPv4 address to a link, with a subnet that contains only this address (/32)."""
        raw = socket.inet_aton(address)
        self._request(
            _RTM_NEWADDR,
            # struct ifaddrmsg: family, prefix, flags, scope, link.
            struct.pack("=BBBBI", socket.AF_INET, _IPV4_BITS, 0, _RT_SCOPE_UNIVERSE, index),
            [(_IFA_LOCAL, raw), (_IFA_ADDRESS, raw)],
            create=True,
        )

    def add_default_route(self, index: int, gateway: str, source: str) -> None:
        """Route all packets over a link to `gateway`.

        The gateway needs no route of its own. source: the default source address of packets.
        """
        self._request(
            _RTM_NEWROUTE,
            _route(0, _RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_UNIVERSE, _RTN_UNICAST)
            + _u32(_RTNH_F_ONLINK),
            [
                (_RTA_OIF, _u32(index)),
                (_RTA_GATEWAY, socket.inet_aton(gateway)),
                (_RTA_PREFSRC, socket.inet_aton(source)),
            ],
            create=True,
        )

    def acknowledge_at_once(self, index: int, address: str) -> None:
        """Make TCP acknowledge each segment from a local address without delay (`quickack 1`).

        This replaces the local route that the kernel created when the link was enabled.
        """
        raw = socket.inet_aton(address)
        self._request(
            _RTM_NEWROUTE,
            _route(_IPV4_BITS, _RT_TABLE_LOCAL, _RTPROT_KERNEL, _RT_SCOPE_HOST, _RTN_LOCAL)
            + _u32(0),
            [
                (_RTA_DST, raw),
                (_RTA_OIF, _u32(index)),
                (_RTA_PREFSRC, raw),
                _nested(_RTA_METRICS, _pack([(_RTAX_QUICKACK, _u32(1))])),
            ],
            flags=_NLM_F_REPLACE,
        )

    def add_neighbour(self, index: int, address: str, hardware_address: bytes) -> None:
        """Permanently set the hardware address of an IPv4 address."""
        self._request(
            _RTM_NEWNEIGH,
            # struct ndmsg: family, link, state, flags, type.
            struct.pack("=BxxxiHBB", socket.AF_INET, index, _NUD_PERMANENT, 0, 0),
            [(_NDA_DST, socket.inet_aton(address)), (_NDA_LLADDR, hardware_address)],
            create=True,
        )

    def set_qdisc(
        self,
        index: int,
        kind: str,
        options: bytes,
        *,
        parent: int = _TC_H_ROOT,
        handle: int,
        overhead: int = 0,
        change: bool = False,
    ) -> None:
        """Add a queueing discipline to a link, or change the options of an existing discipline.

        overhead: the number of bytes by which the discipline increases the size of each packet; it
        may be negative. change: whether to change an existing discipline. Its packets stay queued,
        but its overhead is lost unless `overhead` is passed again.
        """
        attributes = [(_TCA_KIND, _text(kind))]
        if options:
            attributes.append(_nested(_TCA_OPTIONS, options))
        if overhead:
            # struct tc_sizespec: cell and size logarithms, cell alignment, overhead, link layer,
            # smallest packet, largest packet, entries of the table.
            base = struct.pack("=BBhiIIII", 0, 0, 0, overhead, _TC_LINKLAYER_ETHERNET, 0, 0, 0)
            attributes.append(_nested(_TCA_STAB, _pack([(_TCA_STAB_BASE, base)])))
        header = _traffic_control(index, handle=handle, parent=parent)
        self._request(_RTM_NEWQDISC, header, attributes, create=not change)

    def add_ingress_hook(self, index: int) -> None:
        """Allow filters for the incoming packets of a link."""
        self.set_qdisc(
            index, "clsact", b"", parent=_TC_H_CLSACT, handle=_TC_H_CLSACT & _TC_H_MAJ_MASK
        )

    def add_ingress_program(self, index: int, program: int, name: str) -> None:
        """Run a loaded BPF program in direct-action mode on each incoming packet."""
        options = [
            (_TCA_BPF_FD, _u32(program)),
            (_TCA_BPF_NAME, _text(name)),
            (_TCA_BPF_FLAGS, _u32(_TCA_BPF_FLAG_ACT_DIRECT)),
        ]
        self._request(
            _RTM_NEWTFILTER,
            _traffic_control(
                index,
                handle=_FILTER_HANDLE,
                parent=_TC_H_CLSACT & _TC_H_MAJ_MASK | _TC_H_MIN_INGRESS,
                info=_FILTER_PRIORITY << 16 | socket.htons(_ETH_P_ALL),
            ),
            [(_TCA_KIND, _text("bpf")), _nested(_TCA_OPTIONS, _pack(options))],
            create=True,
        )

    def _request(
        self,
        kind: int,
        header: bytes,
        attributes: Iterable[Attribute] = (),
        *,
        create: bool = False,
        flags: int = 0,
    ) -> None:
        body = header + b"\0" * (-len(header) % 4) + _pack(attributes)
        self._sequence += 1
        flags |= _NLM_F_REQUEST | _NLM_F_ACK | (_NLM_F_CREATE | _NLM_F_EXCL if create else 0)
        length = _NLMSGHDR.size + len(body)
        self._socket.send(_NLMSGHDR.pack(length, kind, flags, self._sequence, 0) + body)
        reply = self._socket.recv(65536)
        _, reply_kind, *_ = _NLMSGHDR.unpack_from(reply)
        # A struct nlmsgerr with the code 0 is an acknowledgement.
        (code,) = struct.unpack_from("=i", reply, _NLMSGHDR.size)
        if reply_kind == _NLMSG_ERROR and code:
            raise OSError(-code, f"rtnetlink request {kind}: {os.strerror(-code)}")


def _link(index: int, flags: int = 0, changed_flags: int = 0) -> bytes:
    """Return a struct ifinfomsg: family, hardware type, link, flags, mask of flags to change."""
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, changed_flags)


def _route(prefix_bits: int, table: int, protocol: int, scope: int, kind: int) -> bytes:
    """Return a struct rtmsg without its last field, the flags.

    The fields are: family, lengths of the target's and the source's prefix, type of service, table,
    protocol, scope and kind.
    """
    return struct.pack("=BBBBBBBB", socket.AF_INET, prefix_bits, 0, 0, table, protocol, scope, kind)


def _traffic_control(index: int, *, handle: int, parent: int, info: int = 0) -> bytes:
    """Return a struct tcmsg: family, link, handle, parent and info."""
    return struct.pack("=BxxxiIII", socket.AF_UNSPEC, index, handle, parent, info)


def token_bucket(rate_bytes_per_s: int, burst_bytes: int, *, limit_packets: int = 0) -> bytes:
    """Return the options of a `tbf`. The caller adds the inner queue, at the parent HANDLE:1.

    limit_packets: 0 for a new `tbf`. If an existing `tbf` is changed, the kernel sets the limit of
    an inner `pfifo` to this value, so it must be the limit that the `pfifo` already has.
    """
    # struct tc_tbf_qopt consists of two struct tc_ratespec (cell logarithm, link layer, overhead,
    # cell alignment, smallest packet, rate), and the sizes of queue, bucket and largest packet.
    rate_32_bits = min(rate_bytes_per_s, 2**32 - 1)
    rate = struct.pack("=BBHhHI", 0, _TC_LINKLAYER_ETHERNET, 0, 0, 0, rate_32_bits)
    no_peak = struct.pack("=BBHhHI", 0, 0, 0, 0, 0, 0)
    parameters = rate + no_peak + struct.pack("=III", limit_packets, 0, 0)
    attributes = [(_TCA_TBF_PARMS, parameters), (_TCA_TBF_BURST, _u32(burst_bytes))]
    if rate_32_bits < rate_bytes_per_s:
        attributes.append((_TCA_TBF_RATE64, struct.pack("=Q", rate_bytes_per_s)))
    return _pack(attributes)


def codel(target_us: int, interval_us: int, limit_packets: int) -> bytes:
    """Return the options of a `codel` queue."""
    return _pack(
        [
            (_TCA_CODEL_TARGET, _u32(target_us)),
            (_TCA_CODEL_LIMIT, _u32(limit_packets)),
            (_TCA_CODEL_INTERVAL, _u32(interval_us)),
            (_TCA_CODEL_ECN, _u32(0)),
        ]
    )


def packet_fifo(limit_packets: int) -> bytes:
    """Return the options of a `pfifo` queue, which are a C structure instead of attributes."""
    return _u32(limit_packets)


def departure_queue(limit_packets: int, buckets_log: int) -> bytes:
    """Return the options of an `fq` queue that delays each packet until its departure time.

    The queue neither paces packets nor coalesces timers. Inside it, each flow (a combination of
    addresses and ports) has its own queue. buckets_log: log2 of the size of the flows' hash table.
    """
    return _pack(
        [
            (_TCA_FQ_PLIMIT, _u32(limit_packets)),
            (_TCA_FQ_FLOW_PLIMIT, _u32(limit_packets)),
            (_TCA_FQ_RATE_ENABLE, _u32(0)),
            (_TCA_FQ_BUCKETS_LOG, _u32(buckets_log)),
            (_TCA_FQ_ORPHAN_MASK, _u32(0xFFFFFFFF)),
            (_TCA_FQ_TIMER_SLACK, _u32(0)),
        ]
    )
