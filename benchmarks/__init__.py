"""What callgate costs, measured beside what the same work costs without it: `python -m benchmarks`."""
