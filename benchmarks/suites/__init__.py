"""The suites by name, in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from benchmarks.bench import Bench
from benchmarks.report import SuiteResult
from benchmarks.suites import (
    allowed_calls,
    bindings,
    evaluation,
    filter_cost,
    memory,
    network,
    notified_calls,
    programs,
    startup,
    workloads,
)

Suite = Callable[[Bench], SuiteResult]

SUITES: Final[Mapping[str, Suite]] = MappingProxyType(
    {
        "startup": startup.measure,
        "memory": memory.measure,
        "notified": notified_calls.measure,
        "exec": programs.measure,
        "filter": filter_cost.measure,
        "allowed": allowed_calls.measure,
        "network": network.measure,
        "evaluation": evaluation.measure,
        "workloads": workloads.measure,
        "bindings": bindings.measure,
    }
)
