# What is done, with COUNT files; the outcome must not depend on when and where.
cat > build.py <<'END'
import base64, hashlib, zipfile
files = {
    "tiny/__init__.py": "from tiny.inner import answer\n", "tiny/inner.py": "answer = 42\n", "tiny/data.txt": "data\n",
    "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tiny-1.0.dist-info/entry_points.txt": "[console_scripts]\ntiny = tiny.inner:answer.bit_length\n",
}
record = ""
for name, text in files.items():
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    record += f"{name},sha256={digest},{len(text)}\n"
files["tiny-1.0.dist-info/RECORD"] = record + "tiny-1.0.dist-info/RECORD,,\n"
with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(zipfile.ZipInfo(name), text)
END
python3 build.py
export HOME=$PWD PIP_CONFIG_FILE=/dev/null PYTHONDONTWRITEBYTECODE=1
python3 -m pip install --quiet --disable-pip-version-check --no-index \
  --no-compile --no-cache-dir --target site ./tiny-1.0-py3-none-any.whl
PYTHONPATH=site python3 -c 'import tiny, importlib.metadata as m;
print(tiny.answer, m.version("tiny"), len(m.files("tiny")))'
python3 -m pip list --disable-pip-version-check --path site
