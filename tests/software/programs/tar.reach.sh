# The same program goes for what is denied.
tar cf - /home/agentos/vault | cat
tar cf out.tar -C /home/agentos/vault .
tar xf /home/agentos/vault/key
cd / && tar c home
