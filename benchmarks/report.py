"""What a suite found: cases with their measurements and ratios, held against targets, printed and written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.sampling import Summary, ratios

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Figure:
    """Samples of one thing; *target*, where there is one, is an upper bound on the median in the same unit."""

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

    def as_json(self) -> Json:
        """Plain data, samples included, so that somebody else can summarise them in another way."""
        summary = self.summary
        return {
            "name": self.name,
            "unit": self.unit,
            "count": summary.count,
            "minimum": summary.minimum,
            "lower_quartile": summary.lower_quartile,
            "median": summary.median,
            "upper_quartile": summary.upper_quartile,
            "target": self.target,
            "met": self.met,
            "samples": list(self.samples),
        }


@dataclass(slots=True)
class Case:
    """One kind of work, measured in several ways in the same rounds."""

    title: str
    measured: list[Figure] = field(default_factory=list)
    compared: list[Figure] = field(default_factory=list)

    def add(self, samples: Mapping[str, Sequence[float]], unit: str, *, scale: float = 1.0) -> None:
        """A measurement of each variant, its samples multiplied by *scale* to be in *unit*."""
        self.measured += [Figure(name, unit, [value * scale for value in values]) for name, values in samples.items()]

    def compare(self, ours: str, baseline: str, *, target: float | None = None) -> None:
        """The ratio of two variants, round by round. KeyError for one that was not measured."""
        by_name = {figure.name: figure.samples for figure in self.measured}
        self.compared.append(Figure(f"{ours} / {baseline}", "x", ratios(by_name[ours], by_name[baseline]), target))


@dataclass(slots=True)
class SuiteResult:
    """Everything one suite found."""

    name: str
    title: str
    cases: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def case(self, title: str) -> Case:
        """A new case of this suite."""
        made = Case(title)
        self.cases.append(made)
        return made

    def as_json(self) -> Json:
        """Plain data."""
        cases = [
            {"title": c.title, "measured": [f.as_json() for f in c.measured], "compared": [f.as_json() for f in c.compared]}
            for c in self.cases
        ]
        return {"title": self.title, "cases": cases, "notes": list(self.notes)}

    def as_table(self) -> str:
        """Text for a terminal: of each case the medians with their quartiles, then the ratios with theirs."""
        width = max((len(figure.name) for figure in self._figures()), default=0)
        lines = [f"{self.name}: {self.title}"]
        for case in self.cases:
            lines.append(f"  {case.title}")
            lines += [f"    {_line(figure, width)}" for figure in (*case.measured, *case.compared)]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def _figures(self) -> Iterable[Figure]:
        for case in self.cases:
            yield from (*case.measured, *case.compared)


def _line(figure: Figure, width: int) -> str:
    summary = figure.summary
    spread = f"{_number(summary.lower_quartile)} .. {_number(summary.upper_quartile)}" if summary.count > 1 else ""
    target = "" if figure.target is None else f"target <= {_number(figure.target)}: {'met' if figure.met else 'MISSED'}"
    median = f"{_number(summary.median):>8} {figure.unit:<3}"
    return f"{figure.name:<{width}} {median}  {spread:<18} n={summary.count:<3} {target}".rstrip()


def _number(value: float) -> str:
    """Three digits that matter, and whole numbers above them."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:#.3g}"
