"""Calls on sockets.

Making a socket is not judged; connecting, binding, listening and sending to an address are. The path of a unix socket is a
matter of fs, so the calls that can hold one are notified for either scope.
"""

from __future__ import annotations

from ..arguments.network import AddressedSend, MessageSend, PairFamily, SocketFamily, SocketOptions, SocketQuestions
from ..row import Syscall

ROWS = (
    Syscall(41, "socket", ("network",), "net_socket", SocketFamily(family=0, kind=1, protocol=2)),
    Syscall(42, "connect", ("network", "fs.*"), "net_connect"),
    Syscall(43, "accept"),
    Syscall(44, "sendto", ("network", "fs.*"), "net_sendto", AddressedSend(address=4, flags=3)),
    Syscall(45, "recvfrom"),
    Syscall(46, "sendmsg", ("network", "fs.*"), "net_sendmsg", MessageSend(flags=2)),
    Syscall(47, "recvmsg"),
    Syscall(48, "shutdown"),
    Syscall(49, "bind", ("network", "fs.*"), "net_bind"),
    Syscall(50, "listen", ("network",), "net_listen", why="binds by itself when bind was not called"),
    Syscall(51, "getsockname"),
    Syscall(52, "getpeername"),
    Syscall(53, "socketpair", otherwise=PairFamily(family=0), why="others go past the calls that are judged"),
    Syscall(54, "setsockopt", ("network",), "net_setsockopt", SocketOptions(level=1, option=2)),
    Syscall(55, "getsockopt", otherwise=SocketQuestions(level=1, option=2), why="would hand out a descriptor of the supervisor"),
    Syscall(288, "accept4"),
    Syscall(299, "recvmmsg"),
    Syscall(307, "sendmmsg", ("network", "fs.*"), "net_sendmsg", MessageSend(flags=3)),
)
