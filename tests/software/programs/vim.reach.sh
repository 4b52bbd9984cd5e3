# The same program goes for what is denied.
vim -es -u NONE -c '%p' -c 'q!' /home/agentos/vault/key
vim -es -u NONE -c 'r /home/agentos/vault/key' -c '%p' -c 'q!'
vim -es -u NONE -c 'w /home/agentos/vault/new' -c 'q!'
vim -es -u NONE --cmd 'set directory=/home/agentos/vault' -c 'w x' -c 'q!' x
