"""What a VM's filesystem can be made of: today directories of the host.

The rooms that native and WebAssembly guests will share stand beside it when they are built: a filesystem in memory, copy-on-write
layers over other filesystems, snapshots of both, and archives as read-only trees.
"""
