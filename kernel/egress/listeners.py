"""Where the resolver of every VM is: sockets in the VM's own network that its launch makes and the host serves."""

from __future__ import annotations

from typing import Final

from callgate.kernel.launch_blob import Listener, ListenKind

RESOLVER_ADDRESS: Final = "127.0.0.53"
RESOLVER_PORT: Final = 53

_PACKED: Final = bytes(map(int, RESOLVER_ADDRESS.split(".")))
DATAGRAMS: Final = Listener(ListenKind.UDP, _PACKED, RESOLVER_PORT)
STREAMS: Final = Listener(ListenKind.TCP, _PACKED, RESOLVER_PORT)
