"""`python -m callgate` is the command `callgate`, and so is the console script: both begin with `main`."""

import sys


def main() -> int:
    """Runs the command; the exit code. Ctrl-C while the command is still being loaded ends it as quietly as it does later."""
    try:
        from callgate.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT


if __name__ == "__main__":
    sys.exit(main())
