"""`callgate-fetch` and its Python twin: judged as `http`, then as `fetch`, with the error of the policy's page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.network.servers import WebServer, certificate

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Make = Callable[..., "VM"]

PAGE = "EACCES: permission denied, tcp://example.com:80: blocked by network.http policy"


def rules(*given: tuple[str, list[str], list[str]]) -> dict[str, Any]:
    made = [{"mode": mode, "operations": operations, "patterns": patterns} for mode, operations, patterns in given]
    return {"network": {"default": "deny", "rules": made}}


ONE_HOST = rules(("allow", ["*"], ["api.example.com"]))


def test_the_error_is_the_one_of_the_page_word_for_word(vm_factory: Make) -> None:
    """AOS-50."""
    vm = vm_factory({"network": "deny"})
    done = vm.run(["callgate-fetch", "http://example.com"])
    assert (done.returncode, done.stdout, done.stderr) == (1, "", PAGE + "\n")
    assert [(denial.message, denial.operation, denial.rule) for denial in done.denials] == [(PAGE, "http", "mode")]
    program = "from callgate_fetch import fetch\ntry: fetch('http://example.com')\nexcept PermissionError as e: print(e.errno, e)"
    assert vm.run(["python3", "-c", program]).stdout == f"13 {PAGE}\n"


def test_a_page_of_an_allowed_host_comes_as_it_is(vm_factory: Make) -> None:
    with WebServer() as web:
        vm = vm_factory(ONE_HOST, hosts={"api.example.com": web.endpoint})
        done = vm.run(["callgate-fetch", "http://api.example.com/x?y=z"])
        assert (done.returncode, done.stdout, done.stderr) == (0, "api.example.com /x?y=z\n", "")
        assert not done.denials
        done = vm.run(["callgate-fetch", "-i", "-o", "page", "http://api.example.com:8080/"])
        assert (done.returncode, vm.fs.read_text("page").splitlines()[0]) == (0, "200 OK")
        assert len(web.requests) == 2


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        (["fetch"], "tcp://api.example.com:80: blocked by network.http policy"),
        (["http", "dns"], "tcp://api.example.com:80: blocked by network.fetch policy"),
        (["http", "fetch"], None),
    ],
)
def test_http_is_asked_about_before_fetch_and_a_look_up_is_judged_besides(
    vm_factory: Make, operations: list[str], message: str | None
) -> None:
    with WebServer() as web:
        vm = vm_factory(rules(("allow", operations, ["api.example.com"])), hosts={"api.example.com": web.endpoint})
        done = vm.run(["callgate-fetch", "http://api.example.com/"])
        assert done.returncode == 1
        if message is not None:
            assert done.stderr == f"EACCES: permission denied, {message}\n"
            assert [str(denial) for denial in done.denials] == [f"EACCES: permission denied, {message}"]
        else:
            assert [denial.operation for denial in done.denials] == ["dns"]
        assert web.requests == []


def test_a_local_address_behind_a_name_has_the_same_error_though_the_policy_allows_the_name(vm_factory: Make) -> None:
    vm = vm_factory({"network": "allow"})
    done = vm.run(["callgate-fetch", "http://169.254.169.254/"])
    assert (done.returncode, done.stderr) == (
        1,
        "EACCES: permission denied, tcp://169.254.169.254:80: blocked by network.http policy\n",
    )
    assert [denial.rule for denial in done.denials] == ["local address"]


def test_a_redirect_is_asked_about_anew_and_takes_no_credentials_to_another_host(vm_factory: Make) -> None:
    import http.server
    import threading

    seen: list[tuple[str, str | None]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Authorization")))
            targets = {
                "/other": "http://other.example.com/landed",
                "/same": "/landed",
                "/file": "file:///etc/passwd",
                "/ftp": "ftp://a/",
            }
            target = targets.get(self.path) or ("http://example.com/" if self.path == "/away" else None)
            self.send_response(302 if target else 200)
            if target:
                self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object, **__: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            endpoint = f"127.0.0.1:{server.server_port}"
            policy = rules(("allow", ["*"], ["api.example.com", "other.example.com"]))
            vm = vm_factory(policy, hosts={"api.example.com": endpoint, "other.example.com": endpoint, "example.com": endpoint})

            def fetch(path: str) -> tuple[int, str]:
                done = vm.run(["callgate-fetch", "-H", "Authorization: secret", f"http://api.example.com{path}"])
                return done.returncode, done.stderr

            assert fetch("/same") == (0, "")
            assert fetch("/other") == (0, "")
            assert seen == [("/same", "secret"), ("/landed", "secret"), ("/other", "secret"), ("/landed", None)]
            assert fetch("/away") == (1, PAGE + "\n")
            assert fetch("/file") == fetch("/ftp") == (0, "")  # the answer is the redirect itself
            assert len(seen) == 7
        finally:
            server.shutdown()
            thread.join()


def test_https_is_fetched_and_checked(vm_factory: Make, tmp_path: Path) -> None:
    chain, tls = certificate(tmp_path, "api.example.com")
    with WebServer(tls=tls) as web:
        vm = vm_factory(ONE_HOST, hosts={"api.example.com": web.endpoint}, files={"/opt/trusted.pem": chain.read_bytes()})
        done = vm.run(["callgate-fetch", "https://api.example.com/s"], env={"SSL_CERT_FILE": "/opt/trusted.pem"})
        assert (done.returncode, done.stdout) == (0, "api.example.com /s\n")
        done = vm.run(["callgate-fetch", "https://api.example.com/s"])
        assert (done.returncode, "CERTIFICATE_VERIFY_FAILED" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "unknown url type"),
        ("ftp://example.com/", "not an http or https URL"),
        ("file:///etc/passwd", "not an http or https URL"),
        ("http://", "no host"),
        ("http://example.com:99999/", "ort"),
        ("http://a\x00b/", ""),
    ],
)
def test_what_cannot_be_fetched_is_wrong_usage_without_a_traceback(vm_factory: Make, url: str, said: str) -> None:
    vm = vm_factory({"network": "allow"})
    if "\0" in url:
        program = (
            f"from callgate_fetch import fetch\ntry: fetch({url!r})\nexcept (ValueError, OSError) as error: print('refused')"
        )
        assert vm.run(["python3", "-c", program]).stdout == "refused\n"
        return
    done = vm.run(["callgate-fetch", url])
    assert done.returncode == 2
    assert done.stderr.startswith("callgate-fetch: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_other_failures_are_one_line(vm_factory: Make, tmp_path: Path) -> None:
    with WebServer(tmp_path) as web:
        vm = vm_factory(ONE_HOST, hosts={"api.example.com": web.endpoint})
        done = vm.run(["callgate-fetch", "http://api.example.com/missing"])
        assert done.returncode == 22
        assert done.stderr.startswith("callgate-fetch: 404 ")
    done = vm.run(["callgate-fetch", "http://api.example.com/"])
    assert (done.returncode, done.stderr) == (1, "callgate-fetch: http://api.example.com/: Connection refused\n")


def test_no_binding_takes_the_place_of_the_command(vm_factory: Make) -> None:
    with pytest.raises(ValueError, match="callgate-fetch"):
        vm_factory(bindings={"callgate-fetch": print})


def test_answers_have_status_headers_and_json(vm_factory: Make) -> None:
    with WebServer() as web:
        vm = vm_factory(ONE_HOST, hosts={"api.example.com": web.endpoint})
        program = (
            "import json\nfrom callgate_fetch import fetch\n"
            "answer = fetch('http://api.example.com/j')\n"
            "print(json.dumps([answer.status, answer.headers['content-length'], answer.text, answer.url]))"
        )
        done = vm.run(["python3", "-c", program])
        assert json.loads(done.stdout) == [200, "19", "api.example.com /j\n", "http://api.example.com/j"]
