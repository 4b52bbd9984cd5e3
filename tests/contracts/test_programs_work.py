"""Programs that must simply work: under the default policy, and where every file call is judged because one folder is denied."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import as_ordinary_user, deny

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

POLICIES = {"default": None, "one-folder-denied": deny("/home/agentos/vault/**"), "no-writing-there": deny("/etc/**", operations=["write"])}

#: Each is run by sh -e in an empty directory of its own, first on the bare host.
SCRIPTS = {
    "pipeline": "seq 1 1000 | grep 7 | sort -rn | head -n 3 | tr '\\n' ' ' | sed 's/9/N/g' | tee copy | wc -c; cat copy",
    "many-pipelines": "for i in $(seq 200); do echo $i | cat | cat | cat; done | sort -n | tail -n 1; echo ${PIPESTATUS:-posix}",
    "redirections": "exec 3>three; echo x >&3; exec 3>&-; { echo out; echo err >&2; } >both 2>&1; cat three both; cat <<END\nhere\nEND",
    "jobs": "for i in 1 2 3 4 5; do (sleep 0.0$i; echo done $i > job$i) & done; wait; cat job*; true & wait $!; echo $?",
    "coreutils": (
        "mkdir -p a/b/c; echo one > a/b/one; cp -a a copy; mv copy moved; ln -s one a/b/link; ln a/b/one a/b/hard; touch -d @0 a/b/one;"
        " chmod 640 a/b/one; stat -c '%a %h %s %Y' a/b/one; readlink a/b/link; realpath --relative-to=. a/b/link; du -a moved | wc -l;"
        " ls -1R moved; cmp a/b/one moved/b/one && echo same; head -c 3 a/b/one; tail -c 2 a/b/one; rm -r moved; rmdir a/b/c; ls a/b;"
        " dd if=/dev/zero of=zeros bs=1k count=3 2>/dev/null; truncate -s 1k zeros; wc -c < zeros; split -b 512 zeros part; ls part*;"
        " sha256sum zeros; mktemp -d ./tmpXXXXXX | wc -c; install -m 600 zeros installed; stat -c %a installed; mkfifo f; (cat f &) ; echo fifo > f"
    ),
    "find": "mkdir -p x/y x/z; touch x/y/1.c x/y/2.h x/z/3.c; find x -name '*.c' | sort; find x -type f -newer x/y/1.c | wc -l; find x -delete; ls",
    "xargs": "seq 20 | xargs -n 3 -P 4 echo | wc -w; printf 'a\\0b' | xargs -0 -n 1 echo",
    "tar": (
        "mkdir -p t/d; echo content > t/d/f; ln -s f t/d/l; ln t/d/f t/d/h; chmod 600 t/d/f; tar czf t.tgz t; mkdir out; tar xzf t.tgz -C out;"
        " ls -l out/t/d | awk '{print $1, $2, $9, $10, $11}'; diff -r t out/t && echo same; tar tzf t.tgz | sort"
    ),
    "python-subprocess": (
        'python3 -c "import subprocess; print(subprocess.run([\'sort\'], input=b\'b\\na\\n\', capture_output=True).stdout);'
        " print(subprocess.check_output('exit 3; echo', shell=True) if 0 else subprocess.call('exit 3', shell=True));"
        " p = [subprocess.Popen(['sleep', '0.01']) for _ in range(20)]; print(sum(x.wait() for x in p))\""
    ),
    "python-multiprocessing": (
        "cat > m.py <<'END'\nimport multiprocessing as m\ndef square(n): return n * n\nif __name__ == '__main__':\n"
        "    for how in ('fork', 'spawn', 'forkserver'):\n        context = m.get_context(how)\n"
        "        with context.Pool(3) as pool: print(how, pool.map(square, range(6)))\n"
        "    q = m.Queue(); p = m.Process(target=q.put, args=('queued',)); p.start(); print(q.get()); p.join()\n"
        "    lock = m.Lock(); value = m.Value('i', 0)\n    print(lock.acquire(), value.value)\nEND\npython3 m.py"
    ),
    "python-asyncio": (
        "cat > a.py <<'END'\nimport asyncio\nasync def main():\n"
        "    p = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)\n    print((await p.communicate(b'through cat'))[0])\n"
        "    print(await asyncio.gather(*(asyncio.to_thread(pow, n, 2) for n in range(5))))\n"
        "    server = await asyncio.start_unix_server(lambda r, w: (w.write(b'unix'), w.close()), 's')\n"
        "    reader, writer = await asyncio.open_unix_connection('s'); print(await reader.read()); writer.close(); server.close()\n"
        "asyncio.run(main())\nEND\npython3 a.py"
    ),
    "python-threads": (
        "cat > t.py <<'END'\nimport concurrent.futures, os, tempfile\ndef work(n):\n"
        "    with tempfile.TemporaryDirectory() as folder:\n        path = os.path.join(folder, 'f')\n"
        "        for _ in range(20):\n            with open(path, 'w') as f: f.write(str(n))\n"
        "            os.rename(path, path + '2'); assert open(path + '2').read() == str(n)\n    return n\n"
        "with concurrent.futures.ThreadPoolExecutor(16) as pool: print(sum(pool.map(work, range(64))))\nEND\npython3 -X dev t.py 2>/dev/null"
    ),
    "python-standard-library": (
        "cat > l.py <<'END'\nimport glob, os, pathlib, shutil, sqlite3, zipfile, tempfile, mmap, pickle, fcntl\n"
        "db = sqlite3.connect('d.db'); db.execute('pragma journal_mode=wal'); db.execute('create table t(x)')\n"
        "db.executemany('insert into t values(?)', [(n,) for n in range(100)]); db.commit(); print(db.execute('select sum(x) from t').fetchone())\n"
        "shutil.make_archive('z', 'zip', '.', 'd.db'); print(zipfile.ZipFile('z.zip').namelist())\n"
        "os.makedirs('p/q'); pathlib.Path('p/q/r.txt').write_text('text'); shutil.copytree('p', 'c'); print(sorted(glob.glob('**/*.txt', recursive=True)))\n"
        "shutil.rmtree('p'); print(os.path.exists('p'), [e.name for e in os.scandir('c')])\n"
        "with open('m', 'w+b') as f:\n    f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); m[:4] = b'mmap'; m.flush(); print(open('m', 'rb').read(4))\n"
        "    fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); print('locked')\n"
        "with tempfile.NamedTemporaryFile() as f: print(os.path.exists(f.name))\nEND\npython3 l.py"
    ),
    "git": (
        "export HOME=$PWD; git init -q -b main repo; cd repo; git config user.email a@b.c; git config user.name n;"
        " for i in 1 2 3; do echo $i > f$i; done; git add .; git commit -qm first; echo x >> f1; git commit -qam second; git checkout -qb other HEAD~1;"
        " git mv f2 g2; git commit -qm moved; git checkout -q main; git merge -q --no-edit other; git log --format=%s | sort; git status --short; git fsck;"
        " git gc -q; cd ..; git clone -q repo clone; ls clone; git -C clone diff --stat HEAD~1 | tail -n 1; git -C repo stash list"
    ),
    "gcc": (
        "printf '#include <stdio.h>\\n#include \"x.h\"\\nint main(void) { printf(\"%%d\\\\n\", X); return 0; }\\n' > m.c; echo '#define X 42' > x.h;"
        " gcc -O1 -Wall -o m m.c; ./m; gcc -c m.c -o m.o; ar rc libm.a m.o; ar t libm.a; gcc -static -o s m.c; ./s; gcc -M m.c | tr -d '\\n\\\\\\\\' | grep -c x.h"
    ),
    "make": (
        "printf 'all: a b c\\na b c:\\n\\techo making $@ > $@\\nclean:\\n\\trm -f a b c\\n.PHONY: all clean\\n' > Makefile; make -s -j4 && cat a b c;"
        " make -s clean; ls"
    ),
    "perl": "perl -e 'open(F, \">\", \"f\"); print F \"perl\\n\"; close F; print `cat f`; opendir(D, \".\"); print join(\",\", sort grep {!/^\\./} readdir D), \"\\n\"; exit 0'",
    "awk-sed-grep": "seq 10 > n; awk '{s += $1} END {print s}' n; sed -i 's/1/one/' n; grep -c one n; grep -rl one . | sort",
    "diff-patch": "printf 'a\\nb\\n' > x; printf 'a\\nc\\n' > y; diff -u x y > d || true; cp x z; patch -s z d 2>/dev/null || cp y z; cmp y z && echo patched",
    "signals": "sh -c 'trap \"echo caught; exit 5\" TERM; kill -TERM $$; sleep 1'; echo; sh -c 'kill -KILL $$' || echo killed",
    "locale-and-time": "TZ=UTC date -d @0 +%Y; LC_ALL=C.UTF-8 printf '%s' 'ä' | wc -m; id -u | wc -l; getent passwd root | cut -d: -f1",
    "node": (
        "node -e \"const fs = require('fs'), cp = require('child_process'); fs.writeFileSync('f', 'node'); console.log(fs.readFileSync('f', 'utf8'),"
        " cp.execSync('echo child').toString().trim()); fs.promises.readdir('.').then(n => console.log(n.join())); new Promise(r => setTimeout(r, 5))"
        '.then(() => console.log(2))"'
    ),
}
NEEDED = {"git": "git", "gcc": "gcc", "make": "make", "perl": "perl", "node": "node", "find": "find", "tar": "tar", "xargs": "xargs"}


def skip_unless_installed(name: str) -> None:
    """Only programs that lie where the VM has them too."""
    program = shutil.which(NEEDED.get(name, "sh"))
    if program is None or not os.path.realpath(program).startswith("/usr/"):
        pytest.skip(f"{NEEDED[name]} is not installed below /usr")


def outcome(returncode: int, stdout: str, stderr: str) -> tuple[int, list[str], str]:
    return returncode, stdout.splitlines(), stderr


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_does_what_it_does_on_the_bare_host(vm_factory: Callable[..., VM], host_dir: Path, name: str, policy: str) -> None:
    skip_unless_installed(name)
    script = "set -e\n" + SCRIPTS[name]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(host_dir)}
    done = subprocess.run(
        as_ordinary_user(["/bin/sh", "-c", script]), capture_output=True, text=True, check=False, cwd=host_dir, env=environment, umask=0o022
    )
    assert done.returncode == 0, done.stderr

    vm = vm_factory(permissions=POLICIES[policy], files={"/home/agentos/vault/key": b"secret"})
    vm.fs.unchecked.mkdir(str(host_dir), parents=True)
    result = vm.run(["/bin/sh", "-c", script], cwd=host_dir, env=environment, timeout=120)
    assert outcome(result.returncode, result.stdout, result.stderr) == outcome(done.returncode, done.stdout, done.stderr)
    assert result.denials == ()


def test_the_runs_own_folder_was_really_denied(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=POLICIES["one-folder-denied"], files={"/home/agentos/vault/key": b"secret"})
    result = vm.run("cat vault/key; cp -r . /tmp/copy; find . ; tar cf /tmp/t.tar . 2>&1; grep -r secret / 2>/dev/null")
    assert "secret" not in result.stdout
    assert result.denials
