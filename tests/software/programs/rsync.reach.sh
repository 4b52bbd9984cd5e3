# The same program goes for what is denied.
rsync -a /home/agentos/vault/ copied/
cat copied/*
rsync -a src/ /home/agentos/vault/
rsync -a --copy-links /home/agentos/ home/
