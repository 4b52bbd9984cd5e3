"""The command `callgate`: one module per group of subcommands, thin over the Python API."""
