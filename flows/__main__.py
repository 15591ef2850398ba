"""`python -m flows` is the same as `tokmill`."""

import sys

from flows.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
