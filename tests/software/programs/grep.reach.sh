# The same program goes for what is denied.
grep -r cret /home/agentos/vault
grep -r cret /home
grep -f /home/agentos/vault/key -r .
grep -c . /home/agentos/vault/key /home/agentos/vault/deep/er/note
