"""Rules on the arguments of socket, socketpair, setsockopt and the sending calls.

Families, types, protocols, levels, option names and flags are ints for the kernel: the low half of the register is all there is.
"""

from __future__ import annotations

from errno import EACCES, ENOPROTOOPT, EPERM

from ..decision import ALL_BITS, ALLOW, NOTIFY, Decision, Errno, Word, bits, equals, switch
from ..row import ANY_FS

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_CLOEXEC = 1, 2, 0o4000, 0o2000000
IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_IPV6, SOL_SOCKET, SOL_NETLINK = 0, 6, 17, 41, 1, 270
NETLINK_ROUTE = 0
MSG_FASTOPEN = 0x2000_0000
SO_PASSPIDFD, SO_PEERPIDFD = 76, 77

# level -> option -> why it is refused
DANGEROUS_OPTIONS: dict[int, dict[int, str]] = {
    SOL_SOCKET: {
        25: "SO_BINDTODEVICE chooses the interface, past routing",
        26: "SO_ATTACH_FILTER loads a program into the kernel",
        27: "SO_DETACH_FILTER would let a socket hear whom it was not allowed to send to",
        32: "SO_SNDBUFFORCE passes the kernel's memory limit",
        33: "SO_RCVBUFFORCE passes the kernel's memory limit",
        36: "SO_MARK steers routing and firewalls",
        44: "SO_LOCK_FILTER would keep the supervisor from letting another peer in",
        50: "SO_ATTACH_BPF loads a program into the kernel",
        51: "SO_ATTACH_REUSEPORT_CBPF loads a program into the kernel",
        52: "SO_ATTACH_REUSEPORT_EBPF loads a program into the kernel",
        62: "SO_BINDTOIFINDEX chooses the interface, past routing",
    },
    IPPROTO_IP: {
        4: "IP_OPTIONS can hold a source route, so that the address connected to is not the one reached",
        15: "IP_FREEBIND binds to an address that is not ours",
        16: "IP_IPSEC_POLICY changes how packets leave",
        17: "IP_XFRM_POLICY changes how packets leave",
        19: "IP_TRANSPARENT binds to an address that is not ours",
        32: "IP_MULTICAST_IF chooses the interface, past routing",
        35: "IP_ADD_MEMBERSHIP receives what is sent to others",
        39: "IP_ADD_SOURCE_MEMBERSHIP receives what is sent to others",
        42: "MCAST_JOIN_GROUP receives what is sent to others",
        46: "MCAST_JOIN_SOURCE_GROUP receives what is sent to others",
        50: "IP_UNICAST_IF chooses the interface, past routing",
        51: "IP_LOCAL_PORT_RANGE chooses ports that nobody judged, the host's as well",
        64: "IPT_SO_SET_REPLACE loads packet filters",
        65: "IPT_SO_SET_ADD_COUNTERS changes packet filters",
        96: "ARPT_SO_SET_REPLACE loads packet filters",
        97: "ARPT_SO_SET_ADD_COUNTERS changes packet filters",
        128: "EBT_SO_SET_ENTRIES loads packet filters",
        129: "EBT_SO_SET_COUNTERS changes packet filters",
    },
    IPPROTO_TCP: {
        19: "TCP_REPAIR makes a connection up without connecting",
        20: "TCP_REPAIR_QUEUE belongs to TCP_REPAIR",
        21: "TCP_QUEUE_SEQ belongs to TCP_REPAIR",
        22: "TCP_REPAIR_OPTIONS belongs to TCP_REPAIR",
        29: "TCP_REPAIR_WINDOW belongs to TCP_REPAIR",
        30: "TCP_FASTOPEN_CONNECT puts the connection off until the first write",
        31: "TCP_ULP loads another protocol into the socket",
        42: "TCP_AO_REPAIR belongs to TCP_REPAIR",
    },
    IPPROTO_UDP: {100: "UDP_ENCAP makes the kernel decode a tunnel"},
    IPPROTO_IPV6: {
        6: "IPV6_2292PKTOPTIONS can hold a routing header",
        17: "IPV6_MULTICAST_IF chooses the interface, past routing",
        20: "IPV6_ADD_MEMBERSHIP receives what is sent to others",
        27: "IPV6_JOIN_ANYCAST receives what is sent to others",
        34: "IPV6_IPSEC_POLICY changes how packets leave",
        35: "IPV6_XFRM_POLICY changes how packets leave",
        42: "MCAST_JOIN_GROUP receives what is sent to others",
        46: "MCAST_JOIN_SOURCE_GROUP receives what is sent to others",
        50: "IPV6_PKTINFO chooses the interface, past routing",
        57: "IPV6_RTHDR is a routing header: the address connected to is not the one reached",
        64: "IP6T_SO_SET_REPLACE loads packet filters",
        65: "IP6T_SO_SET_ADD_COUNTERS changes packet filters",
        75: "IPV6_TRANSPARENT binds to an address that is not ours",
        76: "IPV6_UNICAST_IF chooses the interface, past routing",
        78: "IPV6_FREEBIND binds to an address that is not ours",
    },
    SOL_NETLINK: {},
}


class SocketFamily:
    """Passed: AF_UNIX; AF_INET and AF_INET6 as stream or datagram with protocol 0, TCP or UDP; AF_NETLINK with NETLINK_ROUTE.
    Everything else is notified when network is judged, so that the refusal is recorded, and EACCES when it is not.
    """

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        self.family = Word(family)
        self.kind = Word(kind)
        self.protocol = Word(protocol)

    def decide(self, notified: frozenset[str]) -> Decision:
        refused = NOTIFY if "network" in notified else Errno(EACCES)
        known = switch(self.protocol, dict.fromkeys((0, IPPROTO_TCP, IPPROTO_UDP), ALLOW), refused)
        without_flags = ALL_BITS & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)
        internet = switch(self.kind, dict.fromkeys((SOCK_STREAM, SOCK_DGRAM), known), refused, without_flags)
        route = switch(self.protocol, {NETLINK_ROUTE: ALLOW}, refused)
        return switch(self.family, {AF_UNIX: ALLOW, AF_INET: internet, AF_INET6: internet, AF_NETLINK: route}, refused)


class PairFamily:
    """AF_UNIX passes, every other family is EACCES."""

    def __init__(self, family: int) -> None:
        self.family = Word(family)

    def decide(self, _notified: frozenset[str]) -> Decision:
        return switch(self.family, {AF_UNIX: ALLOW}, Errno(EACCES))


class SocketOptions:
    """The options in DANGEROUS_OPTIONS are notified when network is judged, so that the refusal is recorded, and EPERM when it
    is not; SO_PASSPIDFD is ENOPROTOOPT; the other options of SOL_SOCKET, IP, IPv6, TCP, UDP and netlink pass; other levels are
    ENOPROTOOPT.

    SO_PASSPIDFD has descriptors of the senders come with messages. The sender is the supervisor where it sends on behalf.
    """

    def __init__(self, level: int, option: int) -> None:
        self.level = Word(level)
        self.option = Word(option)

    def decide(self, notified: frozenset[str]) -> Decision:
        refused = NOTIFY if "network" in notified else Errno(EPERM)
        levels = {
            level: switch(self.option, dict.fromkeys(dangerous, refused), ALLOW) for level, dangerous in DANGEROUS_OPTIONS.items()
        }
        dangerous = dict.fromkeys(DANGEROUS_OPTIONS[SOL_SOCKET], refused)
        levels[SOL_SOCKET] = switch(self.option, dangerous | {SO_PASSPIDFD: Errno(ENOPROTOOPT)}, ALLOW)
        return switch(self.level, levels, Errno(ENOPROTOOPT))


class SocketQuestions:
    """SO_PEERPIDFD is ENOPROTOOPT, as before Linux 6.5; everything else passes.

    It makes a descriptor of the process at the other end, which is the supervisor where that connected on behalf.
    """

    def __init__(self, level: int, option: int) -> None:
        self.level = Word(level)
        self.option = Word(option)

    def decide(self, _notified: frozenset[str]) -> Decision:
        peer = switch(self.option, {SO_PEERPIDFD: Errno(ENOPROTOOPT)}, ALLOW)
        return switch(self.level, {SOL_SOCKET: peer}, ALLOW)


class AddressedSend:
    """Without an address (all 64 bits of the pointer are 0) it passes, with one it is notified when network or anything of fs
    is judged. MSG_FASTOPEN, which connects while sending, is notified when network is judged and EACCES when it is not.
    """

    def __init__(self, address: int, flags: int) -> None:
        self.address = address
        self.flags = Word(flags)

    def decide(self, notified: frozenset[str]) -> Decision:
        addressed = NOTIFY if notified.intersection(("network", ANY_FS)) else ALLOW
        fast_open = NOTIFY if "network" in notified else Errno(EACCES)
        return bits(self.flags, MSG_FASTOPEN, fast_open, equals(self.address, 0, ALLOW, addressed))


class MessageSend:
    """The address is in memory, so it is notified whenever network or anything of fs is judged. MSG_FASTOPEN, which connects
    while sending, is notified when network is judged and EACCES when it is not.
    """

    def __init__(self, flags: int) -> None:
        self.flags = Word(flags)

    def decide(self, notified: frozenset[str]) -> Decision:
        addressed = NOTIFY if notified.intersection(("network", ANY_FS)) else ALLOW
        fast_open = NOTIFY if "network" in notified else Errno(EACCES)
        return bits(self.flags, MSG_FASTOPEN, fast_open, addressed)
