"""Host functions that a guest may call by name, each call judged by the binding scope."""
