# What is done, with COUNT files; the outcome must not depend on when and where.
python3 -IS -c "$MAKE_SRC"
cp --reflink=auto -a src copy; diff -r src copy && echo same;
find copy -printf '%P %y %m %n %l\n' | sort | sha256sum; find copy -type f | sort | xargs sha256sum | sha256sum
cp --reflink=auto -au src/. copy; cp -al src linked; cp -as "$PWD/src" symlinked;
find linked -type f -links +1 | wc -l
find symlinked -xtype f | wc -l; rm -r symlinked
cp --sparse=always src/d1/e1/f1.txt sparse; cp -n src/d2/e2/f2.txt sparse; cmp src/d1/e1/f1.txt sparse && echo kept
cp -a --backup=numbered src/d2/e2/f2.txt sparse; ls sparse*; mv -T copy moved; mv -n moved/d1 moved/d2 .; ls;
cp -r d1 d2/inside; rm -r d1; ls d2
