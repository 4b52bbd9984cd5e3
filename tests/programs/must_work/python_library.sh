cat > l.py <<'END'
import fcntl
import glob
import mmap
import os
import pathlib
import shutil
import sqlite3
import tempfile
import zipfile

database = sqlite3.connect("d.db")
database.execute("pragma journal_mode=wal")
database.execute("create table t(x)")
database.executemany("insert into t values(?)", [(n,) for n in range(100)])
database.commit()
print(database.execute("select sum(x) from t").fetchone())
shutil.make_archive("z", "zip", ".", "d.db")
print(zipfile.ZipFile("z.zip").namelist())
os.makedirs("p/q")
pathlib.Path("p/q/r.txt").write_text("text")
shutil.copytree("p", "c")
print(sorted(glob.glob("**/*.txt", recursive=True)))
shutil.rmtree("p")
print(os.path.exists("p"), [entry.name for entry in os.scandir("c")])
with open("m", "w+b") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
    memory[:4] = b"mmap"
    memory.flush()
    print(open("m", "rb").read(4))
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked")
with tempfile.NamedTemporaryFile() as file:
    print(os.path.exists(file.name))
END
python3 l.py
