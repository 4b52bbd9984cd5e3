"""What kind of machine the figures were taken on, without anything that would identify it, and how busy it is."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Final

from benchmarks.report import Json


def machine() -> Json:
    """Processors, kernel, Python, privilege and the load at this moment."""
    kernel = re.match(r"\d+\.\d+", platform.release())
    return {
        "processors": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "kernel": f"Linux {kernel[0] if kernel else platform.release()}",
        "virtual": _is_virtual(),
        "python": platform.python_version(),
        "as_root": os.geteuid() == 0,
        "load": round(os.getloadavg()[0], 2),
    }


def _is_virtual() -> bool:
    """Whether a hypervisor is below: there, waking an idle processor and the CPUID instruction cost many microseconds."""
    flags = subprocess.run(["grep", "-m1", "^flags", "/proc/cpuinfo"], capture_output=True, text=True, check=False).stdout
    return "hypervisor" in flags.split()


_LOOK_SECONDS: Final = 0.03
_BUSY: Final = 0.15


def is_busy() -> bool:
    """Whether other programs use more than a little of the processors just now. Takes a few hundredths of a second."""
    idle, total = _processor_time()
    time.sleep(_LOOK_SECONDS)
    idle_later, total_later = _processor_time()
    elapsed = total_later - total
    return elapsed > 0 and 1 - (idle_later - idle) / elapsed > _BUSY


def _processor_time() -> tuple[int, int]:
    """Idle time and all time of all processors since the start of the machine, in ticks (proc_stat(5))."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return fields[3] + fields[4], sum(fields[:8])
