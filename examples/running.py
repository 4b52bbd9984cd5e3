"""Programs beside their caller: talking to one, watching its output, a terminal, two hundred at once, and limits that bite.

python -m examples.running
"""

from __future__ import annotations

import asyncio
import sys

import callgate
from callgate import VM, Limits, Timeout
from examples import report


def talk(vm: VM) -> None:
    """A conversation, line by line."""
    with vm.spawn(["python3", "-uc", "for line in iter(input, ''): print(eval(line))"]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for question in ("6 * 7", "2 ** 20"):
            process.stdin.write(question + "\n")
            print(f"  {question} is {process.stdout.readline().strip()}")
        process.stdin.write("\n")
    print(f"  it ended with {process.returncode}")


def watch(vm: VM) -> None:
    """Output as it arrives, and the whole of it at the end."""
    pieces: list[str] = []
    result = vm.run("for n in 1 2 3; do echo step $n; sleep 0.1; done", on_stdout=pieces.append)
    print(f"  {len(result.stdout.splitlines())} lines, the first heard before the last was written: {pieces[0] != result.stdout}")


def terminal(vm: VM) -> None:
    """A program that wants a terminal gets one of the VM's own, of any size."""
    with vm.spawn("tty; stty size", pty=True, size=(40, 132)) as process:
        assert process.stdout is not None
        print("  " + process.stdout.read().replace("\n", " on a screen of ", 1).strip())


async def many() -> None:
    """Two hundred runs at once, and a task that is cancelled with all that it started."""
    async with callgate.aio.VM() as vm:
        results = await asyncio.gather(*(vm.run(["sh", "-c", f"echo {n}"]) for n in range(200)))
        print(f"  200 runs, the sum of what they said is {sum(int(result.stdout) for result in results)}")
        task = asyncio.create_task(vm.run("setsid sleep 600 & sleep 600"))
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.wait([task])
        print(f"  cancelled: {task.cancelled()}, programs left: {(await vm.status()).programs_running}")


def limits() -> None:
    """Each limit ends, or refuses, what goes over it."""
    # Where this host gives no cgroup, what stands in for one will do here; without best_effort the VM would not start.
    bounds = Limits(memory="64M", processes=8, cpu_seconds=0.5, wall_seconds=5, disk="4M", output="1K")
    with VM(limits=bounds, best_effort=("cgroup",)) as vm:
        busy = vm.run("while :; do :; done")
        print(f"  a busy loop: return code {busy.returncode}, over {', '.join(busy.exceeded)}")
        greedy = vm.run(["python3", "-c", "held = bytearray(256 << 20)"])
        print(f"  256 MiB of 64: {'refused or ended' if greedy.returncode else 'given'}")
        print(f"  8 MiB on a disk of 4: {vm.run('head -c 8M /dev/zero > big').stderr.strip().rpartition(': ')[2]}")
        print(f"  a flood of output: {len(vm.run('yes | head -n 5000').stdout)} characters kept")
        try:
            vm.run("echo begun; sleep 600", timeout=0.5)
        except Timeout as over:
            print(f"  after {over.timeout} seconds: {over.output!r}")


def main() -> int:
    try:
        with VM() as vm:
            for part in (talk, watch, terminal):
                print(part.__doc__)
                part(vm)
        print(many.__doc__)
        asyncio.run(many())
        print(limits.__doc__)
        limits()
    except callgate.CallgateError as error:
        print(f"callgate: {error}\nRun `callgate doctor` to see what this host lacks.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    report.show(main)
