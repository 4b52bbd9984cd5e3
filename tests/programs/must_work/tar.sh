mkdir -p t/d
echo content > t/d/f
ln -s f t/d/l
ln t/d/f t/d/h
chmod 600 t/d/f
tar czf t.tgz t
mkdir out
tar xzf t.tgz -C out
ls -l out/t/d | awk '{print $1, $2, $9, $10, $11}'
diff -r t out/t && echo same
tar tzf t.tgz | sort
