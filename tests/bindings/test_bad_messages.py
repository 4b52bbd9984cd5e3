"""What is no proper message: one clear error each, and no harm to other connections."""

from __future__ import annotations

import json
import random
import socket
import threading

import pytest

from callgate.bindings.frames import MESSAGE_MAX
from tests.bindings.callable_functions import add, error_of
from tests.bindings.conftest import SECONDS, Held, Serve


@pytest.mark.parametrize(
    ("body", "number", "message"),
    [
        (b"\xff\xfe", None, "the message is not UTF-8"),
        (b"{", None, "the message is not JSON"),
        (b"[]", None, "a message must be a JSON object"),
        (b"[" * 100_000, None, "the message is nested more than 128 deep"),
        (b"{}", None, "a message needs an id"),
        (b'{"id":-1,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":1.5,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":true,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":1e400,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":9007199254740993,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":3}', 3, "a message needs a kind"),
        (b'{"id":3,"kind":"exec"}', 3, "'exec' is not a kind of request"),
        (b'{"id":3,"kind":"call"}', 3, "a request of kind 'call' needs 'name' to be of type string"),
        (b'{"id":3,"kind":"call","name":"add","arguments":[1,2]}', 3, "needs 'arguments' to be of type object"),
        (b'{"id":3,"kind":"call","name":"add","positional":{}}', 3, "needs 'positional' to be of type array"),
    ],
)
def test_a_message_that_is_no_request_is_told_and_the_connection_goes_on(
    serve: Serve, body: bytes, number: int | None, message: str
) -> None:
    client = serve({"add": add}).connect()
    client.write(len(body).to_bytes(4, "big") + body)
    reply = client.receive()
    assert reply["id"] == number
    code, text = error_of(reply)
    assert code == "protocol"
    assert message in text
    assert client.call("add", a=1, b=1)["result"] == 2


@pytest.mark.parametrize("length", [0, MESSAGE_MAX + 1, 1 << 31, (1 << 32) - 1])
def test_a_length_that_cannot_be_ends_the_connection_and_no_other(serve: Serve, length: int) -> None:
    served = serve({"add": add})
    bad, other = served.connect(), served.connect()
    bad.write(length.to_bytes(4, "big") + b"x" * 1000)
    assert error_of(bad.receive()) == ("protocol", f"a message of {length} bytes; the length must be 1 to {MESSAGE_MAX}")
    assert bad.receive() is None
    assert other.call("add", a=1, b=1)["result"] == 2


def test_a_message_that_is_cut_short_is_told(serve: Serve) -> None:
    client = serve({"add": add}).connect()
    client.write(b"\0\0\0\x10half")
    client.socket.shutdown(socket.SHUT_WR)
    assert error_of(client.receive()) == ("protocol", "the stream ended within a message")
    assert client.receive() is None


def test_an_id_that_is_in_use_is_refused_and_the_call_goes_on(serve: Serve, held: Held) -> None:
    client = serve({"slow": held}).connect()
    client.send(id=1, kind="call", name="slow")
    assert held.reached.wait(SECONDS)
    client.send(id=1, kind="call", name="slow")
    assert error_of(client.receive()) == ("protocol", "the id 1 is that of a call that still runs")
    held.released.set()
    assert client.receive()["result"] == "let go"


def test_messages_arrive_one_byte_at_a_time_and_many_at_once(serve: Serve) -> None:
    client = serve({"add": add}).connect()
    one = json.dumps({"id": 1, "kind": "call", "name": "add", "arguments": {"a": 1, "b": 2}}).encode()
    for byte in len(one).to_bytes(4, "big") + one:
        client.write(bytes([byte]))
    assert client.receive()["result"] == 3
    bodies = [json.dumps({"id": n, "kind": "call", "name": "add", "arguments": {"a": n, "b": 0}}).encode() for n in range(500)]
    writer = threading.Thread(target=client.write, args=(b"".join(len(body).to_bytes(4, "big") + body for body in bodies),))
    writer.start()
    replies = {reply["id"]: reply["result"] for reply in (client.receive() for _ in bodies)}
    writer.join()
    assert replies == {n: n for n in range(500)}


def test_random_bytes_never_disturb_another_connection(serve: Serve) -> None:
    served = serve({"add": add})
    steady = served.connect()
    noise = random.Random(1)
    for round_number in range(200):
        bad = served.connect()
        valid = json.dumps({"id": 1, "kind": noise.choice(["call", "list", "cancel", "command"]), "name": "add"}).encode()
        content = bytearray(len(valid).to_bytes(4, "big") + valid)
        for _ in range(noise.randrange(4)):
            content[noise.randrange(len(content))] = noise.randrange(256)
        bad.write(bytes(content[: noise.randrange(1, len(content) + 1)]) + noise.randbytes(noise.randrange(20)))
        bad.socket.shutdown(socket.SHUT_WR)
        while (reply := bad.receive()) is not None:
            assert "id" in reply
        bad.close()
        assert steady.call("add", round_number, a=round_number, b=1)["result"] == round_number + 1
