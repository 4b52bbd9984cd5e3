"""Fetches a page from a program in a VM; this one file, with the standard library alone, lies in the VM.

    callgate-fetch http://example.com/

    from callgate_fetch import fetch
    answer = fetch("http://example.com/", timeout=10)
    answer.status, answer.headers["content-type"], answer.body, answer.text, answer.json()

The policy is asked first, about `network.http` and then about `network.fetch`, so that a refusal comes as an error that says
what was refused: `EACCES: permission denied, tcp://example.com:80: blocked by network.http policy`. The connection itself is
judged like any other. Redirects are followed, each asked about anew; proxy settings are not looked at.
"""

from __future__ import annotations

import argparse
import errno
import http.client
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

TYPE_CHECKING = False  # what type checkers take for True, without the time that importing typing takes
if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message
    from http.client import HTTPMessage
    from typing import IO, Any

    from callgate.guest.inside.callgate_guest import Refused, UnixSocket
else:
    from callgate_guest import Refused, UnixSocket

__all__ = ["Answer", "Refused", "fetch"]

_PORTS = {"http": 80, "https": 443}
_CREDENTIALS = ("Authorization", "Cookie", "Proxy-authorization")  # as urllib spells header names


class Answer:
    """What a server answered. `headers` finds names in any case; `url` is where the answer came from in the end."""

    def __init__(self, url: str, status: int, reason: str, headers: Message, body: bytes) -> None:
        self.url, self.status, self.reason, self.headers, self.body = url, status, reason, headers, body

    @property
    def text(self) -> str:
        """The body as text, in the charset that the server names or else UTF-8; bytes that are not are replaced."""
        try:
            return self.body.decode(self.headers.get_content_charset("utf-8"), "replace")
        except LookupError:  # the server made a charset up
            return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON; `ValueError` if it is none."""
        return json.loads(self.body)


def fetch(
    url: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | str | None = None,
    *,
    timeout: float = 30.0,
) -> Answer:
    """The answer to an HTTP or HTTPS request, whatever its status.

    Raises `Refused`, a PermissionError, where the policy refuses; `ValueError` for a URL that cannot be fetched; another
    `OSError` where the server cannot be reached, or does not answer within *timeout* seconds of silence.
    """
    content = body.encode() if isinstance(body, str) else body
    request = urllib.request.Request(url, content, dict(headers or {}), method=method)
    _ask(url)
    opener = urllib.request.OpenerDirector()
    handlers = (urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.HTTPErrorProcessor)
    for handler in (*handlers, urllib.request.HTTPDefaultErrorHandler, _Redirects):
        opener.add_handler(handler())
    try:
        try:
            answer = opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            answer = error  # an answer like any other
        with answer:
            return Answer(answer.url, answer.status or 0, answer.reason, answer.headers, answer.read())
    except urllib.error.URLError as error:
        if isinstance(error.reason, PermissionError):
            # Allowed by name, but what the name leads to is not: the text is the one that the record of it has.
            raise Refused(f"EACCES: permission denied, {_subject(url)}: blocked by network.http policy") from None
        if isinstance(error.reason, OSError):
            raise error.reason from None
        raise
    except http.client.HTTPException as error:
        raise ConnectionError(errno.EPROTO, f"{_subject(url)} did not answer in HTTP: {error!r}") from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Asks about each place before it goes there, and takes no credentials along to another; other schemes are not followed."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in _PORTS:
            return None
        _ask(newurl)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and _subject(newurl) != _subject(req.full_url):
            for name in _CREDENTIALS:
                request.remove_header(name)
        return request


def _subject(url: str) -> str:
    """What a request for *url* is judged as; `ValueError` if it cannot be fetched."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in _PORTS:
        raise ValueError(f"{url!r} is not an http or https URL")
    host = parts.hostname
    if not host:
        raise ValueError(f"{url!r} names no host")
    if ":" not in host:
        host = host.encode("idna").decode()
    return f"tcp://{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS[parts.scheme]}"


def _ask(url: str) -> None:
    """`Refused` if the policy does not allow to fetch *url*."""
    subject = _subject(url)
    channel = UnixSocket()
    try:
        for number, operation in enumerate(("http", "fetch")):
            asked = {"id": number, "kind": "authorize", "scope": "network", "operation": operation, "subject": subject}
            channel.send(json.dumps(asked).encode())
            reply = json.loads(channel.receive())
            if not reply.get("ok"):
                error = reply["error"]
                raise Refused(error["message"]) if error["code"] == "EACCES" else OSError(errno.EPROTO, error["message"])
    finally:
        channel.close()


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 'Name: value'")
    return name.strip(), value.strip()


def main(arguments: list[str]) -> int:
    """0: answered, 1: refused or not reached, 2: wrong usage, 22: answered with a status of 400 or more."""
    parser = argparse.ArgumentParser("callgate-fetch", description="Fetch a page as the policy of this VM allows.")
    parser.add_argument("url", metavar="URL")
    parser.add_argument("-X", "--request", metavar="METHOD", help="GET, or POST with -d, unless said otherwise")
    parser.add_argument("-H", "--header", metavar="'NAME: VALUE'", type=_header, action="append", default=[])
    parser.add_argument("-d", "--data", metavar="TEXT", help="the body of the request")
    parser.add_argument("-i", "--include", action="store_true", help="show status and headers before the body")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the body there instead of to standard output")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=30.0)
    given = parser.parse_args(arguments)
    method = given.request or ("GET" if given.data is None else "POST")
    try:
        answer = fetch(given.url, method, dict(given.header), given.data, timeout=given.timeout)
        output = sys.stdout.buffer if given.output is None else open(given.output, "wb")  # noqa: SIM115 - closed below
        with output:
            if given.include:
                output.write(f"{answer.status} {answer.reason}\n{answer.headers}".encode())
            output.write(answer.body)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:  # before ValueError: a certificate that does not fit is both
        print(f"callgate-fetch: {given.url}: {error.strerror or error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"callgate-fetch: {error}", file=sys.stderr)
        return 2
    if answer.status >= 400:
        print(f"callgate-fetch: {answer.status} {answer.reason}", file=sys.stderr)
        return 22
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
