export HOME=$PWD GIT_CONFIG_GLOBAL=/dev/null
git init -q --bare remote.git
printf '#!/bin/sh\nwhile read old new ref; do echo "received $ref" >> %s/received; done\n' "$PWD" > remote.git/hooks/post-receive
chmod +x remote.git/hooks/post-receive
git init -q -b main repo
cd repo
git config user.email a@b.c
git config user.name n
hook() { printf '#!/bin/sh\n%s\n' "$2" > .git/hooks/$1; chmod +x .git/hooks/$1; }
hook pre-commit 'if git diff --cached | grep -q FORBIDDEN; then echo "pre-commit refuses" >&2; exit 1; fi'
hook prepare-commit-msg 'echo "prepared" >> "$1"'
hook commit-msg 'grep -q first "$1" || echo "Reviewed" >> "$1"'
hook post-commit 'git rev-parse --abbrev-ref HEAD >> ../committed'
hook pre-push 'echo "pushing to $1" >> ../pushed; cat > /dev/null'
hook post-checkout 'echo "checked out $3" >> ../checked'
echo one > f; git add f; git commit -qm first
echo FORBIDDEN > g; git add g; git commit -qm second 2>&1 || echo "refused $?"
echo fine > g; git add g; git commit -qm third
git log --format=%B
git remote add origin ../remote.git
git push -q origin main
git checkout -qb side
cat ../committed ../pushed ../received ../checked
