# The same program goes for what is denied.
python3 -c "import sqlite3; sqlite3.connect('/home/agentos/vault/key').execute('select 1 from t')"
python3 -c "import sqlite3; sqlite3.connect('x').execute('attach ? as v', ('/home/agentos/vault/new.db',))"
