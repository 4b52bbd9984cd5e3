"""Takes samples of several ways to do the same work in turns, and says how they compare.

The machine's speed changes while a benchmark runs (other programs, the processor's clock), so figures taken one after the
other cannot be compared. Here every round takes one sample of each variant, in an order that rotates, and what is compared
is the ratio within each round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Variant = Callable[[], float]
"""One sample of one way to do the work, in whatever unit its measurement says."""


def seconds(action: Callable[[], object]) -> Variant:
    """A variant whose sample is the wall-clock time of one call."""

    def sample() -> float:
        before = time.perf_counter()
        action()
        return time.perf_counter() - before

    return sample


def interleave(
    variants: Mapping[str, Variant], *, rounds: int, warm_up: int = 1, before_round: Callable[[], object] = lambda: None
) -> dict[str, list[float]]:
    """*rounds* samples of each variant; the n-th samples of all were taken together. *warm_up* more rounds are thrown away."""
    if rounds < 1:
        raise ValueError("at least one round is needed")
    names = list(variants)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-warm_up, rounds):
        before_round()
        turn = number % len(names) if names else 0
        for name in names[turn:] + names[:turn]:
            sample = variants[name]()
            if number >= 0:
                samples[name].append(sample)
    return samples


def ratios(ours: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Ours over baseline, round by round. ValueError if the two were not sampled in the same rounds."""
    if len(ours) != len(baseline):
        raise ValueError(f"{len(ours)} samples cannot be paired with {len(baseline)}")
    return [mine / other for mine, other in zip(ours, baseline, strict=True)]


@dataclass(frozen=True, slots=True)
class Summary:
    """A set of samples in five numbers; the quartiles are the spread."""

    count: int
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Summary:
        """ValueError for no samples; quartiles are those of `statistics.quantiles` with the samples as the whole population."""
        if not samples:
            raise ValueError("there are no samples to summarise")
        if len(samples) == 1:
            return cls(1, samples[0], samples[0], samples[0], samples[0])
        lower, median, upper = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(len(samples), min(samples), lower, median, upper)
