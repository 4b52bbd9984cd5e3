"""Makes the tree "src" of COUNT files, of several sizes, modes and kinds."""

import os
from pathlib import Path

count = int(os.environ["COUNT"])
for n in range(count):
    folder = f"src/d{n % 17}/e{n % 3}"
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open(f"{folder}/f{n}.txt", "w") as file:
        file.write(f"file {n}\n" + f"line of {n % 7}\n" * (n % 50))
    if n % 10 == 0:
        os.chmod(f"{folder}/f{n}.txt", 0o750)
    if n % 25 == 0:
        os.symlink(f"f{n}.txt", f"{folder}/link{n}")
    if n % 40 == 0:
        os.link(f"{folder}/f{n}.txt", f"{folder}/hard{n}")
