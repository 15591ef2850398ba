"""`python -m tokmill` is the same as `tokmill`."""

import gc
import sys

# Hardly anything that a command makes while it starts is rubbish, and most of what follows is freed by counts
# of references: to look for cycles as often as Python does would take an eighth of the time.
gc.set_threshold(100_000, 10, 10)

from tokmill.flows.commands.main import main  # noqa: E402 - what the line above speeds up

if __name__ == "__main__":
    sys.exit(main())
