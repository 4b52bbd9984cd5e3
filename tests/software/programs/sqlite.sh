# What is done, with COUNT files; the outcome must not depend on when and where.
cat > w.py <<'END'
import sqlite3, subprocess, sys
def connect():
    db = sqlite3.connect("data.db", timeout=60, isolation_level=None)
    db.execute("pragma synchronous = normal")
    return db
if len(sys.argv) > 1:
    db = connect()
    for n in range(40):
        db.execute("begin immediate")
        db.executemany("insert into t values (?, ?)", [(int(sys.argv[1]), n)] * 5)
        db.execute("commit")
    sys.exit()
db = connect()
print(db.execute("pragma journal_mode = wal").fetchone())
db.execute("create table t (writer, n)")
import os
print(sorted(name for name in os.listdir(".") if name.startswith("data")))
writers = [subprocess.Popen([sys.executable, "-IS", "w.py", str(n)]) for n in range(3)]
reader = connect()
seen = [reader.execute("select count(*) from t").fetchone()[0] for _ in range(20)]
print(seen == sorted(seen), [writer.wait() for writer in writers])
print(db.execute("select writer, count(*), sum(n) from t group by writer order by writer").fetchall())
db.execute("savepoint s"); db.execute("delete from t"); db.execute("rollback to s"); db.execute("release s")
print(db.execute("pragma wal_checkpoint(truncate)").fetchone()[0], db.execute("pragma integrity_check").fetchone())
other = sqlite3.connect("backup.db"); db.backup(other); print(other.execute("select count(*) from t").fetchone())
db.execute("vacuum"); db.close(); reader.close(); other.close()
print(sorted(name for name in os.listdir(".") if "db" in name))
END
python3 -IS w.py
