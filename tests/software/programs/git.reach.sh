# The same program goes for what is denied.
export HOME=$PWD
git init -q r
cd r
ln -s /home/agentos/vault v
git --work-tree=/home/agentos/vault add -A
git hash-object -w /home/agentos/vault/key
cat .git/objects/??/* 2>/dev/null
git clone -q /home/agentos/vault c
git config -f /home/agentos/vault/key -l
