"""`hosts=` and `host_ports=`: what is taken, and what is said about everything else."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.scopes.endpoints import Endpoint, host_endpoints, host_ports

LOOPBACK, LOOPBACK_6 = b"\x7f\0\0\1", bytes(15) + b"\1"


@pytest.mark.parametrize(
    ("name", "endpoint", "expected"),
    [
        ("api.example.com", "127.0.0.1:8443", ("api.example.com", Endpoint(LOOPBACK, 8443))),
        ("API.Example.com.", "127.0.0.1", ("api.example.com", Endpoint(LOOPBACK, None))),
        ("db", "[::1]:5432", ("db", Endpoint(LOOPBACK_6, 5432))),
        ("db", "[::1]", ("db", Endpoint(LOOPBACK_6, None))),
        ("db", "::1", ("db", Endpoint(LOOPBACK_6, None))),
        ("_x.my-host", "localhost:1", ("_x.my-host", Endpoint(LOOPBACK, 1))),
        ("xn--bcher-kva.example", "10.1.2.3:65535", ("xn--bcher-kva.example", Endpoint(b"\x0a\1\2\3", 65535))),
        ("a", "[::ffff:127.0.0.1]:80", ("a", Endpoint(LOOPBACK, 80))),
    ],
)
def test_a_name_stands_for_an_endpoint(name: str, endpoint: str, expected: tuple[str, Endpoint]) -> None:
    assert host_endpoints({name: endpoint}) == dict([expected])


def test_nothing_is_opened_by_nothing() -> None:
    assert host_endpoints(None) == host_endpoints({}) == {}
    assert host_ports(()) == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "empty"),
        (".", "empty"),
        ("a..b", "is empty"),
        (".a", "is empty"),
        ("a" * 64 + ".b", "longer than 63"),
        ("a." * 127 + "b", "longer than 253"),
        ("*.example.com", "not a pattern"),
        ("http://example.com", "without scheme"),
        ("example.com/x", "without scheme"),
        ("example.com:80", "no port"),
        ("127.0.0.1", "an address needs no name"),
        ("[::1]", "an address needs no name"),
        ("0x7f.1", "an address needs no name"),
        ("1.2.3.4.5", "ends in a number"),
        ("bücher.example", "xn--"),
        ("localhost", "host_ports"),
        ("a.localhost", "host_ports"),
        ("a b", "holds no ' '"),
        ("a\0b", "holds no"),
    ],
)
def test_what_is_no_name_is_refused_in_its_place(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^hosts\[") as caught:
        host_endpoints({"fine.example": "127.0.0.1", name: "127.0.0.1:80"})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("", "not an endpoint"),
        ("example.com:80", "write its address"),
        ("http://127.0.0.1:80", "is not"),
        ("127.0.0.1:", "not a port"),
        ("127.0.0.1:0", "not a port"),
        ("127.0.0.1:65536", "not a port"),
        ("127.0.0.1:http", "not a port"),
        ("127.0.0.1:+80", "not a port"),
        ("127.0.0.1:٣", "not a port"),
        ("127.0.0.1/8", "not an endpoint"),
        ("[::1", "IPv6"),
        ("[::1]80", "IPv6"),
        ("[127.0.0.1]:80", "IPv6"),
        ("0.0.0.0:80", "one host"),
        ("224.0.0.1:80", "one host"),
        ("fe80::1%eth0", "zone id"),
    ],
)
def test_what_is_no_endpoint_is_refused_in_its_place(endpoint: str, said: str) -> None:
    with pytest.raises(ValueError, match=r'^hosts\["a\.example"\]') as caught:
        host_endpoints({"a.example": endpoint})
    assert said in str(caught.value)


def test_one_name_written_twice_is_an_error_that_shows_both() -> None:
    with pytest.raises(ValueError, match=r'hosts\["A\.example\."\] and hosts\["a\.example"\] are the same name'):
        host_endpoints({"a.example": "127.0.0.1:1", "A.example.": "127.0.0.1:2"})


@pytest.mark.parametrize("hosts", [["a"], "a", {1: "127.0.0.1"}, {"a": 80}, {"a": None}, {"a": b"127.0.0.1"}])
def test_what_is_no_mapping_of_text_is_a_type_error(hosts: Any) -> None:
    with pytest.raises(TypeError, match=r"^hosts"):
        host_endpoints(hosts)


def test_ports_come_in_order() -> None:
    assert host_ports(iter([8080, 1, 65535])) == (1, 8080, 65535)


@pytest.mark.parametrize("ports", [[0], [-1], [65536], [80, 80]])
def test_what_is_no_port_is_a_value_error(ports: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^host_ports"):
        host_ports(ports)


@pytest.mark.parametrize("ports", ["80", b"80", 80, ["80"], [True], [80.0], {80: 1}, None])
def test_what_is_no_number_is_a_type_error(ports: Any) -> None:
    with pytest.raises(TypeError, match=r"^host_ports"):
        host_ports(ports)
