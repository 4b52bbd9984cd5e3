"""What kind of machine the figures were taken on, without anything that would identify it."""

from __future__ import annotations

import os
import platform
import re
import subprocess

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
