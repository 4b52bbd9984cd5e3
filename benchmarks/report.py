"""What a suite found: measurements, ratios held against their targets, and how both are printed and written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.sampling import Summary, ratios

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One variant's samples; *target*, where there is one, is an upper bound in the same unit."""

    name: str
    unit: str
    samples: Sequence[float]
    target: float | None = None

    @property
    def summary(self) -> Summary:
        return Summary.of(self.samples)

    @property
    def met(self) -> bool | None:
        """Whether the median keeps to the target; None without one."""
        return None if self.target is None else self.summary.median <= self.target


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two variants' samples divided round by round; *target*, where there is one, is an upper bound on the median."""

    ours: str
    baseline: str
    ratios: Sequence[float]
    target: float | None = None

    @property
    def name(self) -> str:
        return f"{self.ours} / {self.baseline}"

    @property
    def summary(self) -> Summary:
        return Summary.of(self.ratios)

    @property
    def met(self) -> bool | None:
        """Whether the median keeps to the target; None without one."""
        return None if self.target is None else self.summary.median <= self.target


@dataclass(slots=True)
class SuiteResult:
    """Everything one suite found."""

    name: str
    title: str
    measurements: list[Measurement] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, samples: Mapping[str, Sequence[float]], unit: str, *, scale: float = 1.0) -> None:
        """Measurements of these samples, each multiplied by *scale* to be in *unit*."""
        for name, values in samples.items():
            self.measurements.append(Measurement(name, unit, [value * scale for value in values]))

    def compare(self, ours: str, baseline: str, *, target: float | None = None) -> None:
        """The ratio of two measurements of the same rounds. KeyError for a name that was not added."""
        by_name = {measurement.name: measurement.samples for measurement in self.measurements}
        self.comparisons.append(Comparison(ours, baseline, ratios(by_name[ours], by_name[baseline]), target))

    def as_json(self) -> Json:
        """Plain data, samples included, so that somebody else can summarise them in another way."""
        return {
            "title": self.title,
            "measurements": [
                {
                    "name": m.name,
                    "unit": m.unit,
                    **_summary_json(m.summary),
                    "target": m.target,
                    "met": m.met,
                    "samples": list(m.samples),
                }
                for m in self.measurements
            ],
            "comparisons": [
                {"ours": c.ours, "baseline": c.baseline, **_summary_json(c.summary), "target": c.target, "met": c.met}
                for c in self.comparisons
            ],
            "notes": list(self.notes),
        }

    def as_table(self) -> str:
        """Text for a terminal: medians with their quartiles, then ratios with theirs."""
        rows = [
            (m.name, m.unit, m.summary, "" if m.target is None else f"<= {_number(m.target)} {_verdict(m.met)}")
            for m in self.measurements
        ]
        rows += [(c.name, "x", c.summary, "" if c.target is None else f"<= {c.target:.2f} {_verdict(c.met)}") for c in self.comparisons]
        width = max((len(name) for name, *_ in rows), default=0)
        lines = [f"{self.name}: {self.title}"]
        for name, unit, summary, target in rows:
            spread = f"{_number(summary.lower_quartile)} .. {_number(summary.upper_quartile)}"
            line = f"  {name:<{width}}  {_number(summary.median):>9} {unit:<4} {spread:<20} n={summary.count:<3} {target}"
            lines.append(line.rstrip())
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _summary_json(summary: Summary) -> Json:
    return {
        "count": summary.count,
        "minimum": summary.minimum,
        "lower_quartile": summary.lower_quartile,
        "median": summary.median,
        "upper_quartile": summary.upper_quartile,
    }


def _verdict(met: bool | None) -> str:
    return "met" if met else "MISSED"


def _number(value: float) -> str:
    """Three digits that matter, thousands written out."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
