from typing import Any

# Made from the C headers by build.py; what the functions take and give is said there.
ffi: Any
lib: Any
