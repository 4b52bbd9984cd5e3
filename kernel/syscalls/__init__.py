"""The one table that says what becomes of every system call."""
