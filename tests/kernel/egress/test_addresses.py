"""Local addresses: every range, its borders, and every spelling of an IPv4 address as an IPv6 one."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callgate.kernel.egress.addresses import local_kind

LOCAL = {
    "127.0.0.1": "a loopback address",
    "127.255.255.255": "a loopback address",
    "0.0.0.0": "a loopback address",
    "0.1.2.3": "a loopback address",
    "10.0.0.0": "a private address",
    "10.255.255.255": "a private address",
    "172.16.0.0": "a private address",
    "172.31.255.255": "a private address",
    "192.168.0.1": "a private address",
    "192.0.0.8": "a private address",
    "100.64.0.0": "a shared (CGNAT) address",
    "100.127.255.255": "a shared (CGNAT) address",
    "169.254.0.1": "a link-local address",
    "169.254.169.254": "a cloud metadata address",
    "169.254.170.2": "a cloud metadata address",
    "100.100.100.200": "a cloud metadata address",
    "168.63.129.16": "a cloud metadata address",
    "192.0.0.192": "a cloud metadata address",
    "224.0.0.1": "a multicast address",
    "239.255.255.255": "a multicast address",
    "255.255.255.255": "a reserved address",
    "240.0.0.1": "a reserved address",
    "::": "a loopback address",
    "::1": "a loopback address",
    "fc00::": "a private address",
    "fdff:ffff::1": "a private address",
    "fec0::1": "a private address",
    "64:ff9b:1::1": "a private address",
    "fe80::1": "a link-local address",
    "febf::1": "a link-local address",
    "ff02::1": "a multicast address",
    "fd00:ec2::254": "a cloud metadata address",
    "fd20:ce::254": "a cloud metadata address",
}
PUBLIC = [
    "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255",
    "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "223.255.255.255",
    "168.63.129.17", "2606:4700::1111", "2000::", "fbff:ffff::", "fe00::", "64:ff9b::101:101", "2002:101:101::1",
    "::ffff:1.1.1.1",
]  # fmt: skip

IPV4 = st.one_of(
    st.sampled_from([int(IPv4Address(text)) for text in (*LOCAL, *PUBLIC) if ":" not in text]), st.integers(0, 2**32 - 1)
)


@pytest.mark.parametrize(("address", "kind"), LOCAL.items(), ids=str)
def test_it_is_local_and_said_to_be_what_it_is(address: str, kind: str) -> None:
    assert local_kind(ip_address(address).packed) == kind


@pytest.mark.parametrize("address", PUBLIC)
def test_it_is_not_local(address: str) -> None:
    assert local_kind(ip_address(address).packed) is None


@given(IPV4)
@example(0x7F000001)
def test_an_ipv6_address_that_stands_for_an_ipv4_one_is_what_that_is(value: int) -> None:
    expected = local_kind(value.to_bytes(4, "big"))
    spelled = [
        0xFFFF << 32 | value,  # mapped
        0xFFFF << 48 | value,  # translated
        0x64FF9B << 96 | value,  # NAT64
        0x2002 << 112 | value << 80 | 1,  # 6to4
        0x20010000 << 96 | value << 64 | (0xFFFFFFFF ^ 0x01010101),  # Teredo, the server
        0x20010000 << 96 | 0x01010101 << 64 | (0xFFFFFFFF ^ value),  # Teredo, the client
    ]
    assert {local_kind(each.to_bytes(16, "big")) for each in spelled} == {expected}
    if value > 1:
        assert local_kind(value.to_bytes(16, "big")) == expected  # compatible


@given(st.one_of(st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(0, 2**128 - 1).map(IPv6Address)))
def test_what_python_calls_loopback_private_or_link_local_is_local(address: IPv4Address | IPv6Address) -> None:
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        assert local_kind(address.packed) is not None


@pytest.mark.parametrize("size", [0, 3, 5, 15, 17])
def test_other_bytes_are_no_address(size: int) -> None:
    with pytest.raises(ValueError, match="neither IPv4 nor IPv6"):
        local_kind(bytes(size))
