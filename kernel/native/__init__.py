"""The C half of the kernel: the supervisor program, and its pure parts as a module that Python can call (`_core`)."""
