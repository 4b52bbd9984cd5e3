cat > t.py <<'END'
import concurrent.futures
import os
import tempfile


def work(n):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        for _ in range(20):
            with open(path, "w") as file:
                file.write(str(n))
            os.rename(path, path + "2")
            with open(path + "2") as file:
                assert file.read() == str(n)
    return n


with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(sum(pool.map(work, range(64))))
END
python3 t.py
