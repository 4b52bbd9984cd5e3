# What is done, with COUNT files; the outcome must not depend on when and where.
mkdir -p project/tests; cd project; touch tests/__init__.py
cat > shape.py <<'END'
def area(a, b): return a * b
END
cat > tests/test_shape.py <<'END'
import multiprocessing, pathlib, shutil, subprocess, sys, tempfile, unittest
import shape
class ShapeTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir="."))
        self.addCleanup(shutil.rmtree, self.folder)
    def test_area(self): self.assertEqual(shape.area(2, 3), 6)
    def test_files(self):
        for n in range(30): (self.folder / f"{n}").write_text(str(n))
        (self.folder / "1").rename(self.folder / "one"); (self.folder / "2").unlink()
        (self.folder / "3").chmod(0o600)
        self.assertEqual(len(list(self.folder.rglob("*"))), 29)
        with self.assertRaises(FileNotFoundError): (self.folder / "2").read_text()
        with self.assertRaises(FileExistsError): self.folder.mkdir()
    def test_program(self): self.assertEqual(subprocess.check_output([sys.executable, "-c", "print(1)"]), b"1\n")
    def test_processes(self):
        with multiprocessing.Pool(2) as pool: self.assertEqual(pool.starmap(shape.area, [(1, 2), (3, 4)]), [2, 12])
    @unittest.expectedFailure
    def test_that_fails(self): self.assertEqual(shape.area(1, 1), 2)
END
python3 -m unittest discover -v 2>&1 | sed 's/ in [0-9.]*s//'; python3 -m compileall -q . ;
find . -name '*.pyc' | wc -l; rm -r tests; ls
