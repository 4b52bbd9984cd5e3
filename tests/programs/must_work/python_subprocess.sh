cat > s.py <<'END'
import subprocess

print(subprocess.run(["sort"], input=b"b\na\n", capture_output=True).stdout)
print(subprocess.call("exit 3", shell=True))
children = [subprocess.Popen(["sleep", "0.01"]) for _ in range(20)]
print(sum(child.wait() for child in children))
try:
    subprocess.run(["sleep", "60"], timeout=0.1)
except subprocess.TimeoutExpired:
    print("timed out")
END
python3 s.py
