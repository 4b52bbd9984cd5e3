export HOME=$PWD
git init -q -b main repo
cd repo
git config user.email a@b.c
git config user.name n
for i in 1 2 3; do echo $i > f$i; done
git add .
git commit -qm first
echo x >> f1
git commit -qam second
git checkout -qb other HEAD~1
git mv f2 g2
git commit -qm moved
git checkout -q main
git merge -q --no-edit other
git log --format=%s | sort
git status --short
git fsck
git gc -q
cd ..
git clone -q repo clone
ls clone
git -C clone diff --stat HEAD~1 | tail -n 1
