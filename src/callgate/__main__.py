"""`python -m callgate` is the command `callgate`."""

import sys

from callgate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
