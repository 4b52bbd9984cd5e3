"""The command line of the benchmarks: which suites to run, and where their figures go."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.machine import machine
from benchmarks.report import Json
from benchmarks.suites import SUITES


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure what callgate costs beside what the same work costs without it. Timings are reported, never judged: "
        "the exit code is 0 whether or not the targets are met.",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(SUITES),
        metavar="NAME",
        help=f"run one suite; may be repeated: {', '.join(SUITES)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures, samples included")
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long each round may wait for other programs to leave the processors idle",
    )
    parser.add_argument("--short", action="store_true", help="a few samples of everything: shows that it runs, not how fast")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the suites that were asked for, printing each table as it is ready."""
    options = _parser().parse_args(arguments)
    report: Json = {"machine": machine(), "short": options.short}
    results: dict[str, Json] = {}
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    with Bench(short=options.short, patience=options.patience) as bench:
        for name in options.only or SUITES:
            result = SUITES[name](bench)
            results[name] = result.as_json()
            print(f"\n{result.as_table()}", flush=True)
        report |= {"rounds": bench.rounds_taken, "rounds_begun_busy": bench.rounds_begun_busy}
        if options.patience:
            print(f"\n{bench.rounds_begun_busy} of {bench.rounds_taken} rounds began on a busy machine")
    if options.json is not None:
        options.json.write_text(json.dumps({**report, "suites": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
