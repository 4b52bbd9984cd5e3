# What is done, with COUNT files; the outcome must not depend on when and where.
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z
git config --global user.email a@b.c; git config --global user.name n; git config --global init.defaultBranch main
git init -q repo; cd repo
python3 -IS -c "$MAKE_SRC"
git add .; git commit -qm base
git checkout -qb topic; for d in src/d1 src/d2; do find $d -type f | sort | head -n 20 | while read f;
do echo topic >> $f; done; done
git commit -qam edited; git mv src/d3 src/moved; git commit -qm moved; git rm -qr src/d4; git commit -qm removed
git checkout -q main; find src/d5 -type f | sort | head -n 20 | while read f; do echo main >> $f; done;
git commit -qam other
git checkout -q topic; git rebase -q main
git log --format='%H %s'; git status --short; git ls-files -s | sha256sum
cd ..; git clone -q repo clone; git -C clone rev-parse HEAD; git -C clone status --short
git -C clone fsck; git -C clone gc -q; git -C clone log --format=%H main..topic 2>/dev/null || git -C clone branch -a
diff -r --exclude=.git repo clone && echo same
