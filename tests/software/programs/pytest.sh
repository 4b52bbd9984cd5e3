# What is done, with COUNT files; the outcome must not depend on when and where.
mkdir -p project/tests/deep; cd project
cat > shape.py <<'END'
def area(a, b): return a * b
END
cat > tests/conftest.py <<'END'
import pytest
@pytest.fixture(params=range(3))
def side(request): return request.param
END
cat > tests/test_shape.py <<'END'
import os, subprocess, sys, pytest, shape
def test_area(side): assert shape.area(side, 2) == 2 * side
def test_files(tmp_path):
    for n in range(40): (tmp_path / f"{n}").write_text(str(n))
    (tmp_path / "1").rename(tmp_path / "one"); (tmp_path / "2").unlink(); (tmp_path / "3").chmod(0o600)
    assert len(list(tmp_path.iterdir())) == 39
    with pytest.raises(FileNotFoundError): (tmp_path / "2").read_text()
def test_capture(capfd):
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    assert capfd.readouterr().out == "from a child\n"
def test_environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path); monkeypatch.setenv("A", "1")
    assert (os.environ["A"], os.getcwd()) == ("1", str(tmp_path))
@pytest.mark.xfail(strict=True)
def test_that_fails(): assert shape.area(1, 1) == 2
@pytest.mark.skip(reason="left out")
def test_left_out(): pass
END
for n in $(seq 20); do echo "def test_$n(tmp_path): (tmp_path / 'x').write_text('$n')" > tests/deep/test_$n.py; done
export PYTHONPATH="$SITE:." PYTHONHASHSEED=0
python3 -m pytest -v --basetemp=../temporary --junitxml=../report.xml 2>&1 | sed -n 's/ *\[ *[0-9]*%\]//; /::/p' | sort
python3 -m pytest -q -k 'deep and not 7' --basetemp=../temporary 2>&1 | sed 's/ in [0-9.]*s//'
echo 'def test_broken(): assert [1, 2] == [1, 3]' > tests/test_broken.py
python3 -m pytest -q --tb=short --basetemp=../temporary tests/test_broken.py 2>&1 | grep '^E ' || echo passed
python3 -m pytest -q --lf --co --basetemp=../temporary 2>&1 | head -n 1
find . -name '*.pyc' | wc -l; cd ..; rm -r temporary report.xml project/.pytest_cache
