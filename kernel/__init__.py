"""The kernel of a VM on the host's side: what it may do is planned here, and the supervisor that enforces it is started here."""
