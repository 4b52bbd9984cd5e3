cat > m.py <<'END'
import multiprocessing


def square(n):
    return n * n


if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(how).Pool(3) as pool:
            print(how, pool.map(square, range(6)))
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=queue.put, args=("queued",))
    process.start()
    print(queue.get())
    process.join()
    print(multiprocessing.Lock().acquire(), multiprocessing.Value("i", 7).value)
END
python3 m.py
