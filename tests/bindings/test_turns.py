"""Turns: one piece of work of each party after the other, none lost, and each party's own in the order in which they came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callgate.bindings.turns import Party, Turns


@given(counts=st.lists(st.integers(0, 12), max_size=6))
def test_every_party_has_its_turn_before_one_has_its_next(counts: list[int]) -> None:
    turns, parties = Turns(), [Party() for _ in counts]
    for number, count in enumerate(counts):
        for place in range(count):
            turns.add(parties[number], number * 100 + place, 1)
    order = []
    while turns:
        order.append(turns.take()[0])
    expected = [number * 100 + place for place in range(12) for number, count in enumerate(counts) if place < count]
    assert order == expected


def test_what_is_left_to_do_comes_after_the_others() -> None:
    turns, busy, other = Turns(), Party(), Party()
    turns.add(busy, 1, 1)
    assert turns.take() == (1, 1)
    turns.add(busy, 1, 0)
    turns.add(other, 2, 1)
    turns.add(busy, 3, 1)
    turns.add(busy, 1, 4)  # keeps its place, and is done at once
    assert [turns.take() for _ in range(3)] == [(1, 4), (2, 1), (3, 1)]
    assert not turns


def test_work_that_is_not_wanted_any_more_leaves_its_party_able_to_come_back() -> None:
    turns, party = Turns(), Party()
    turns.add(party, 1, 1)
    del party.waiting[1]
    assert turns.take()[0] < 0
    assert not turns
    turns.add(party, 2, 1)
    assert turns.take() == (2, 1)
