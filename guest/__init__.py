"""Guests: one module per kind of program a VM can run, all behind the same interface and the same policy."""
