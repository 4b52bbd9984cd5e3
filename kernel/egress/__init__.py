"""The host's side of the network scope: what names mean for a VM, and which endpoints of the host the operator opened to it."""
