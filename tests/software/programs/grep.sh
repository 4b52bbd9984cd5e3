# What is done, with COUNT files; the outcome must not depend on when and where.
python3 -IS -c "$MAKE_SRC"
grep -r 'line of 3' src | sort | sha256sum; grep -rlw 7 src | sort; grep -rc file src | sort | sha256sum;
grep -rL line src | sort
grep -R 'file 25$' src | sort; grep -rn --include='*1.txt' -m 1 line . | sort | head -n 5;
grep -rz file src | tr -d '\0' | wc -c; grep -rq absent src || echo $?
