"""What confines a guest before a single call is judged: the private root, its environment and the system call filter."""
