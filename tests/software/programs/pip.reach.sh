# The same program goes for what is denied.
python3 -m pip install -q --no-index --target site /home/agentos/vault/a-1.0-py3-none-any.whl
python3 -m pip install -q --no-index -r /home/agentos/vault/key
python3 -m pip install -q --no-index --no-deps --target /home/agentos/vault/site ./*.whl
