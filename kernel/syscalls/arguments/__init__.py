"""Decisions that depend on the arguments of a call, one class for each kind of call."""
