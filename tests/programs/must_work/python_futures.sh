cat > f.py <<'SCRIPT'
import os, signal, subprocess, sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool


def square(number):
    return number * number


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def run(number):
    return int(subprocess.run(["sh", "-c", f"echo {number}"], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    with ProcessPoolExecutor(4) as pool:
        print(sum(pool.map(square, range(200), chunksize=5)))
        print(sorted(future.result() for future in as_completed([pool.submit(square, n) for n in range(5)])))
    with ThreadPoolExecutor(8) as pool:
        print(sum(pool.map(run, range(60))))
    try:
        with ProcessPoolExecutor(2) as pool:
            list(pool.map(die, range(2)))
    except BrokenProcessPool:
        print("a worker that is killed breaks its pool")
    sys.stdout.flush()
SCRIPT
python3 f.py
