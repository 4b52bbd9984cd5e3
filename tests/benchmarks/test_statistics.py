"""The arithmetic of the benchmarks: samples are taken in turns, paired by round, and summarised by median and quartiles."""

import itertools
from collections.abc import Callable

import pytest

from benchmarks.report import Case, SuiteResult
from benchmarks.sampling import Summary, interleave, ratios, seconds


def recorder(order: list[str], name: str, values: Callable[[], float]) -> Callable[[], float]:
    def sample() -> float:
        order.append(name)
        return values()

    return sample


def test_every_round_takes_one_sample_of_each_variant() -> None:
    order: list[str] = []
    counter = itertools.count()
    variants = {name: recorder(order, name, lambda: float(next(counter))) for name in "abc"}
    samples = interleave(variants, rounds=4, warm_up=0)
    assert [set(order[i : i + 3]) for i in range(0, 12, 3)] == [{"a", "b", "c"}] * 4
    assert {name: len(values) for name, values in samples.items()} == {"a": 4, "b": 4, "c": 4}


def test_no_variant_is_always_the_first_of_its_round() -> None:
    order: list[str] = []
    interleave({name: recorder(order, name, lambda: 1.0) for name in "abc"}, rounds=3, warm_up=0)
    assert order[::3] == ["a", "b", "c"]


def test_warm_up_rounds_are_thrown_away() -> None:
    counter = itertools.count()
    samples = interleave({"only": lambda: float(next(counter))}, rounds=2, warm_up=3)
    assert samples == {"only": [3.0, 4.0]}


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        interleave({"a": lambda: 1.0}, rounds=0)


def test_a_timed_variant_is_never_negative_and_calls_its_action_once() -> None:
    calls: list[None] = []
    assert seconds(lambda: calls.append(None))() >= 0
    assert len(calls) == 1


def test_ratios_are_taken_within_each_round() -> None:
    # The second round was ten times slower for both: the ratio does not notice.
    assert ratios([2.0, 20.0, 3.0], [1.0, 10.0, 2.0]) == [2.0, 2.0, 1.5]


def test_samples_of_different_rounds_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="3 samples cannot be paired with 2"):
        ratios([1.0, 2.0, 3.0], [1.0, 2.0])


def test_a_summary_holds_the_median_and_the_quartiles() -> None:
    assert Summary.of([5.0, 1.0, 4.0, 2.0, 3.0]) == Summary(5, 1.0, 2.0, 3.0, 4.0)
    assert Summary.of([1.0, 2.0, 3.0, 4.0]) == Summary(4, 1.0, 1.75, 2.5, 3.25)
    assert Summary.of([7.0]) == Summary(1, 7.0, 7.0, 7.0, 7.0)


def test_one_outlier_moves_neither_median_nor_quartiles_far() -> None:
    calm, disturbed = Summary.of([10.0] * 9), Summary.of([10.0] * 8 + [1000.0])
    assert (disturbed.lower_quartile, disturbed.median, disturbed.upper_quartile) == (10.0, 10.0, 10.0)
    assert calm.median == disturbed.median


def test_an_empty_set_of_samples_has_no_summary() -> None:
    with pytest.raises(ValueError, match="no samples"):
        Summary.of([])


@pytest.mark.parametrize(("target", "met"), [(2.0, True), (1.9, False), (None, None)])
def test_a_target_is_met_when_the_median_ratio_keeps_to_it(target: float | None, met: bool | None) -> None:
    case = Case("work")
    case.add({"ours": [2.0, 4.0, 9.0], "theirs": [1.0, 2.0, 3.0]}, "ms")
    case.compare("ours", "theirs", target=target)
    (ratio,) = case.compared
    assert (ratio.name, ratio.summary.median, ratio.met) == ("ours / theirs", 2.0, met)


def test_a_scale_changes_the_unit_and_not_the_ratio() -> None:
    case = Case("work")
    case.add({"ours": [0.002, 0.004], "theirs": [0.001, 0.002]}, "ms", scale=1e3)
    case.compare("ours", "theirs")
    assert [list(figure.samples) for figure in case.measured] == [[2.0, 4.0], [1.0, 2.0]]
    assert list(case.compared[0].samples) == [2.0, 2.0]


def test_what_was_not_measured_cannot_be_compared() -> None:
    case = Case("work")
    case.add({"ours": [1.0]}, "ms")
    with pytest.raises(KeyError, match="theirs"):
        case.compare("ours", "theirs")


def test_the_table_shows_medians_spread_targets_and_notes() -> None:
    result = SuiteResult("suite", "title", notes=["a note"])
    case = result.case("work")
    case.add({"ours": [3.0, 4.0, 5.0], "theirs": [2.0, 2.0, 2.0]}, "ms")
    case.compare("ours", "theirs", target=1.5)
    lines = [" ".join(line.split()) for line in result.as_table().splitlines()]
    assert lines == [
        "suite: title",
        "work",
        "ours 4.00 ms 3.50 .. 4.50 n=3",
        "theirs 2.00 ms 2.00 .. 2.00 n=3",
        "ours / theirs 2.00 x 1.75 .. 2.25 n=3 target <= 1.50: MISSED",
        "note: a note",
    ]


def test_something_can_be_done_before_every_round_warm_up_included() -> None:
    order: list[str] = []
    variants = {name: recorder(order, name, lambda: 1.0) for name in "ab"}
    interleave(variants, rounds=2, warm_up=1, before_round=lambda: order.append("-"))
    assert "".join(order) == "-ba-ab-ba"
