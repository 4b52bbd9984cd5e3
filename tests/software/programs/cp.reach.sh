# The same program goes for what is denied.
cp --reflink=auto -a /home/agentos/vault v
cp /home/agentos/vault/key k
ln /home/agentos/vault/key l
cp -s /home/agentos/vault/key s
cat s
mv /home/agentos/vault moved
cp /dev/null /home/agentos/vault/key
cat v/* k l
