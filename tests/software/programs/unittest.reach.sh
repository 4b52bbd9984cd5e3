# The same program goes for what is denied.
python3 -m unittest discover -s /home/agentos/vault -t /home/agentos/vault
python3 -m unittest /home/agentos/vault/test_it.py
PYTHONPATH=/home/agentos/vault python3 -m unittest test_it
