# What is done, with COUNT files; the outcome must not depend on when and where.
python3 -IS -c "$MAKE_SRC"
tar cf t.tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner src; sha256sum t.tar; mkdir out;
tar xf t.tar -C out
diff -r src out/src && echo same; gzip -n t.tar; tar tzf t.tar.gz | wc -l; tar xzf t.tar.gz -C out --overwrite
find out -printf '%P %y %m %n %l\n' | sort | sha256sum; find out -type f | sort | xargs sha256sum | sha256sum
