"""`python -m tokmill` is the same as `tokmill`."""

import atexit
import gc
import sys

# Hardly anything that a command makes while it starts is rubbish, and most of what follows is freed by counts
# of references: to look for cycles as often as Python does would take an eighth of the time, and a second or
# two while kernels are compiled.
gc.set_threshold(2_000_000, 10, 10)
atexit.register(gc.freeze)  # else Python looks for cycles before it ends: 0.2 s after a run

try:
    from tokmill.flows.commands.main import main  # what the lines above speed up
except KeyboardInterrupt:
    sys.exit(130)  # before anything began

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
