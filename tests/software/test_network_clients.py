"""Real clients reach exactly the one host that is allowed, by its name: HTTP and HTTPS, whatever resolver they bring along.

Each client runs in a VM in which `api.example.com` alone is allowed and, by `hosts=`, leads to a server of this machine. The
control is the same server on the same port under `blocked.example.com`, which the client must not reach.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.network.servers import WebServer, certificate
from tests.vm_fixtures import PROGRAMS

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

ALLOWED, BLOCKED = "api.example.com", "blocked.example.com"
POLICY = {"network": {"default": "deny", "rules": [{"mode": "allow", "operations": ["*"], "patterns": [ALLOWED]}]}}
REFUSAL = f"EACCES: permission denied, tcp://{BLOCKED}:{{port}}: blocked by network.http policy"

Make = Callable[..., "VM"]


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebServer]:
    with WebServer(tmp_path) as server:
        (tmp_path / "page").write_text("a page\n")
        yield server


@pytest.fixture
def client_vm(vm_factory: Make) -> Make:
    def make(server: WebServer, **options: object) -> VM:
        return vm_factory(POLICY, hosts={ALLOWED: server.endpoint, BLOCKED: server.endpoint}, **options)

    return make


def program(name: str) -> str:
    """Where a program lies, as a VM has it too."""
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
    if found is None or not os.path.realpath(found).startswith("/usr/"):
        pytest.skip(f"{name} is not installed below /usr")
    return found


def refused(vm: VM, port: int) -> bool:
    return REFUSAL.format(port=port) in [denial.message for denial in vm.denials]


URLLIB = "import sys, urllib.request\nsys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"
HTTP_CLIENT = """
import http.client, sys, urllib.parse
url = urllib.parse.urlsplit(sys.argv[1])
kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
connection = kind(url.hostname, url.port, timeout=20)
connection.request("GET", url.path)
sys.stdout.write(connection.getresponse().read().decode())
"""
ASYNCIO = """
import asyncio, ssl, sys, urllib.parse
async def main(url):
    context = ssl.create_default_context() if url.scheme == "https" else None
    port = url.port or (443 if context else 80)
    # Both families at once, the second a little later (RFC 8305).
    reader, writer = await asyncio.open_connection(url.hostname, port, ssl=context, happy_eyeballs_delay=0.05)
    writer.write(f"GET {url.path} HTTP/1.0\\r\\nHost: {url.hostname}\\r\\n\\r\\n".encode())
    answer = await reader.read()
    writer.close()
    sys.stdout.write(answer.decode().partition("\\r\\n\\r\\n")[2])
asyncio.run(main(urllib.parse.urlsplit(sys.argv[1])))
"""
NODE = """
fetch(process.argv[1]).then(answer => answer.text()).then(text => process.stdout.write(text))
    .catch(error => { console.error(error.cause); process.exit(1) })
"""

CLIENTS = {
    "curl": ["curl", "-sS"],
    "wget": ["wget", "-q", "-O", "-", "--tries=1", "--ca-certificate=/opt/trusted.pem"],
    "urllib": ["python3", "-c", URLLIB],
    "http.client": ["python3", "-c", HTTP_CLIENT],
    "asyncio": ["python3", "-W", "ignore", "-c", ASYNCIO],
    "node": ["node", "-e", NODE],
}
TRUST = dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"), "/opt/trusted.pem")


@pytest.mark.parametrize("name", CLIENTS)
def test_it_fetches_a_page_from_the_allowed_host_and_none_from_another(client_vm: Make, web: WebServer, name: str) -> None:
    program(CLIENTS[name][0])
    vm = client_vm(web)
    done = vm.run([*CLIENTS[name], f"http://{ALLOWED}/page"], timeout=60)
    assert (done.returncode, done.stdout, done.denials) == (0, "a page\n", ())
    assert web.requests == [(ALLOWED, "/page")]
    done = vm.run([*CLIENTS[name], f"http://{BLOCKED}:{web.port}/page"], timeout=60)
    assert done.returncode != 0
    assert done.stdout == ""
    assert refused(vm, web.port)
    assert len(web.requests) == 1


@pytest.mark.parametrize("name", CLIENTS)
def test_it_fetches_by_https_and_checks_the_name(client_vm: Make, tmp_path: Path, name: str) -> None:
    program(CLIENTS[name][0])
    program("openssl")
    chain, tls = certificate(tmp_path, ALLOWED)
    with WebServer(tls=tls) as web:
        vm = client_vm(web, files={"/opt/trusted.pem": chain.read_bytes()}, env=TRUST)
        done = vm.run([*CLIENTS[name], f"https://{ALLOWED}/secret"], timeout=60)
        assert (done.returncode, done.stdout, done.denials) == (0, f"{ALLOWED} /secret\n", ())
        assert web.requests == [(ALLOWED, "/secret")]
        done = vm.run([*CLIENTS[name], f"https://{BLOCKED}/secret"], timeout=60)
        assert done.returncode != 0
        assert refused(vm, 443)
        assert len(web.requests) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_git_clones_and_fetches(client_vm: Make, tmp_path: Path, scheme: str) -> None:
    program("git")
    served = tmp_path / "served"
    repository = served / "project.git"
    script = """
        git init -q -b main work && cd work && git config user.name Author && git config user.email a@example.com
        for n in 1 2 3; do echo $n > file$n; git add .; git commit -qm "commit $n"; done
        cd .. && git clone -q --bare work "$1" && git -C "$1" update-server-info"""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run(
        ["/bin/sh", "-euc", script, "sh", str(repository)], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    tls = None
    files: dict[str, bytes] = {}
    if scheme == "https":
        chain, tls = certificate(tmp_path, ALLOWED)
        files["/opt/trusted.pem"] = chain.read_bytes()
    with WebServer(served, tls=tls) as web:
        vm = client_vm(web, files=files, env=TRUST if files else None)
        done = vm.run(
            f"git clone -q {scheme}://{ALLOWED}/project.git && cd project && git log --format=%s && git fetch -q && cat file3"
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "commit 3\ncommit 2\ncommit 1\n3\n", "")
        assert done.denials == ()
        came = len(web.requests)
        done = vm.run(f"git clone -q {scheme}://{BLOCKED}:{web.port}/project.git other")
        assert done.returncode == 128
        assert refused(vm, web.port)
        assert len(web.requests) == came


def test_pip_downloads_from_an_index(client_vm: Make, tmp_path: Path) -> None:
    python = sys._base_executable  # type: ignore[attr-defined]
    if subprocess.run([python, "-c", "import pip"], check=False, capture_output=True, cwd="/").returncode:
        pytest.skip("this Python has no pip")
    wheel = tmp_path / "files" / "tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "ANSWER = 42\n")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    index = tmp_path / "simple" / "tiny"
    index.mkdir(parents=True)
    (index / "index.html").write_text(
        '<!DOCTYPE html><html><body><a href="/files/tiny-1.0-py3-none-any.whl">tiny</a></body></html>'
    )
    pip = [python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-cache-dir", "--retries=0", "--timeout=20"]

    def command(host: str) -> list[str]:
        return [*pip, f"--index-url=http://{host}/simple/", f"--trusted-host={host.partition(':')[0]}", "tiny"]

    with WebServer(tmp_path) as web:
        vm = client_vm(web)
        done = vm.run(command(ALLOWED), timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        assert vm.fs.read_bytes("tiny-1.0-py3-none-any.whl") == wheel.read_bytes()
        came = len(web.requests)
        assert came >= 2
        done = vm.run(command(f"{BLOCKED}:{web.port}"), timeout=120)
        assert done.returncode != 0
        assert refused(vm, web.port)
        assert len(web.requests) == came


@pytest.mark.parametrize("compiler", ["gcc", "musl-gcc"])
def test_the_resolver_of_a_c_library_leads_to_the_host(client_vm: Make, web: WebServer, tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    built = tmp_path / "client"
    linking = ["-static"] if compiler == "musl-gcc" else []  # glibc loads parts of its resolver as it goes
    subprocess.run([compiler, *linking, "-O1", "-D_GNU_SOURCE", "-o", built, PROGRAMS / "getaddrinfo.c"], check=True)
    vm = client_vm(web, files={"/opt/client": built.read_bytes()})
    done = vm.run(["/opt/client", ALLOWED, "80"])
    assert (done.returncode, done.stdout) == (0, "198.18.0.1 HTTP/1.1 404 No\n")
    assert (done.denials, web.requests) == ((), [(ALLOWED, "/c")])
    done = vm.run(["/opt/client", BLOCKED, str(web.port)])
    assert (done.returncode, done.stdout) == (0, "198.18.0.2 errno 13\n")
    assert refused(vm, web.port)
    done = vm.run(["/opt/client", "localhost", "9"])
    assert "127.0.0.1 errno 13\n" in done.stdout  # found, as ever, and judged as the address it is
    assert len(web.requests) == 1


def test_a_program_with_a_resolver_of_its_own_leads_to_the_host(
    client_vm: Make, web: WebServer, compile_c: Callable[..., Path]
) -> None:
    vm = client_vm(web, files={"/opt/raw_dns": compile_c(PROGRAMS / "raw_dns.c").read_bytes()})
    done = vm.run(["/opt/raw_dns", ALLOWED, "1", "80"])
    assert done.stdout == "rcode 0 198.18.0.1\nHTTP/1.1 404 No\n"
    assert web.requests == [(ALLOWED, "/raw")]
    assert vm.run(["/opt/raw_dns", ALLOWED, "28"]).stdout == "rcode 0\n"
    assert vm.run(["/opt/raw_dns", BLOCKED, "1", "80"]).stdout == "rcode 0 198.18.0.2\nconnect: errno 13\n"
    assert vm.run(["/opt/raw_dns", BLOCKED, "28"]).stdout == "rcode 0\n"
    assert len(web.requests) == 1


DIG = {
    "an address": (["api.example.com", "A", "+short"], "198.18.0.1\n"),
    "by tcp": (["api.example.com", "A", "+short", "+tcp"], "198.18.0.1\n"),
    "no address of the other family": (["api.example.com", "AAAA", "+short"], ""),
    "the name of an address": (["-x", "198.18.0.1", "+noall", "+comments"], "status: NXDOMAIN"),
    "a mail server": (["api.example.com", "MX", "+noall", "+comments"], "status: NOERROR"),
    "another class": (["version.bind", "CH", "TXT", "+noall", "+comments"], "status: REFUSED"),
    "a zone": (["api.example.com", "AXFR", "+noall", "+comments"], "Transfer failed"),
    "several at once": (["+short", "api.example.com", "localhost"], "198.18.0.1\n127.0.0.1\n"),
    "with everything on": (["api.example.com", "+short", "+dnssec", "+cookie", "+nsid", "+bufsize=4096"], "198.18.0.1\n"),
}


@pytest.mark.parametrize(("arguments", "expected"), DIG.values(), ids=DIG)
def test_dig_is_answered_what_it_asks(vm_factory: Make, arguments: list[str], expected: str) -> None:
    program("dig")
    # For TCP it binds a socket before it connects, which is judged as if it were going to listen.
    binding = {"mode": "allow", "operations": ["listen"], "patterns": ["0.0.0.0"]}
    policy = {"network": {"default": "deny", "rules": [{"mode": "allow", "patterns": [ALLOWED]}, binding]}}
    done = vm_factory(policy, hosts={ALLOWED: "127.0.0.1:9"}).run(["dig", "+tries=1", "+time=5", *arguments], timeout=30)
    assert (expected == done.stdout) if expected.endswith("\n") or not expected else (expected in done.stdout)
    assert done.stderr == ""


def test_getent_finds_what_is_there(client_vm: Make, web: WebServer) -> None:
    vm = client_vm(web)
    assert vm.run(["getent", "hosts", ALLOWED]).stdout.split() == ["198.18.0.1", ALLOWED]
    assert vm.run(["getent", "hosts", "localhost"]).stdout.split()[0] in ("::1", "127.0.0.1")
    assert vm.run(["getent", "hosts", "198.18.0.1"]).returncode == 2
