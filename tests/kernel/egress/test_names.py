"""Addresses that stand for names: never one for two names, never a second one for a name."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from callgate.kernel.egress.names import NAMES_MAX, Names, Share


def test_no_two_names_ever_share_an_address_and_the_table_ends() -> None:
    names = Names()
    seen: dict[bytes, str] = {}
    for share in Share:
        for number in range(share.value):
            assigned = names.assign(f"{share.name}-{number}", share)
            assert assigned is not None
            for address in (assigned.ipv4, assigned.ipv6):
                assert seen.setdefault(address, assigned.name) == assigned.name
    assert len(seen) == 2 * NAMES_MAX
    for share in Share:
        assert names.assign("one-more", share) is None
        assert names.assign(f"{share.name}-0", share) is not None  # the old ones stay


def test_addresses_are_of_the_ranges_for_benchmarks_and_end_in_an_ordinary_number() -> None:
    names = Names()
    for number in range(2000):
        assigned = names.assign(str(number), Share.ALLOWED)
        assert assigned is not None
        address = IPv4Address(assigned.ipv4)
        assert address in ip_network("198.18.0.0/15")
        assert int(address) & 0xFF not in (0, 255)
        assert IPv6Address(assigned.ipv6) in ip_network("2001:2::/48")


def test_names_that_are_refused_take_no_place_from_those_that_are_not() -> None:
    names = Names()
    while names.assign(f"denied-{len(names._assigned)}", Share.DENIED) is not None:
        pass
    assert names.assign("allowed", Share.ALLOWED) is not None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(Share))))
def test_a_name_keeps_its_addresses_whatever_is_asked_in_between(asked: list[tuple[str, Share]]) -> None:
    names = Names()
    first = {name: names.assign(name, share) for name, share in reversed(asked)}
    assert all(names.assign(name, share) == first[name] for name, share in asked)
