# The same program goes for what is denied.
export PYTHONPATH="$SITE"
python3 -m pytest /home/agentos/vault
python3 -m pytest --rootdir=/home/agentos/vault -c /home/agentos/vault/key .
python3 -m pytest --junitxml=/home/agentos/vault/report.xml --basetemp=/home/agentos/vault/temporary .
