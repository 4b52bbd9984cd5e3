# What is done, with COUNT files; the outcome must not depend on when and where.
python3 -IS -c "$MAKE_SRC"
rsync -aH src/ copy/; find copy -printf '%P %y %m %n %l\n' | sort | sha256sum;
find copy -type f | sort | xargs sha256sum | sha256sum
rm -r src/d3; echo more >> src/d1/e1/f1.txt; mkdir src/new; mv src/d2/e2/f2.txt src/new
find src -exec touch -h -d @1000000000 {} +
rsync -aHi --delete src/ copy/ | sort; rsync -aHin --delete src/ copy/; diff -r src copy && echo same
rsync -a --remove-source-files --exclude='link*' src/d5/ moved/; find src/d5 -type f | wc -l
find moved -printf '%P %y %m %n %l\n' | sort | sha256sum; find moved -type f | sort | xargs sha256sum | sha256sum
