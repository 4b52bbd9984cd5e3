"""The asynchronous twin of callgate: `callgate.aio.VM` has the names of `callgate.VM`, to be awaited. Not loaded with `callgate`.

async with callgate.aio.VM(permissions=...) as vm:
    result = await vm.run(["make"], timeout=60)
"""

from callgate.aio.process import Process
from callgate.aio.vm import VM

__all__ = ["VM", "Process"]
