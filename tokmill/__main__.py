"""`python -m tokmill` is the same as `tokmill`."""

import atexit
import contextlib
import ctypes
import gc
import os
import sys

# Hardly anything that a command makes while it starts is rubbish, and most of what follows is freed by counts
# of references: to look for cycles as often as Python does would take an eighth of the time.
gc.set_threshold(500_000, 10, 10)
atexit.register(gc.freeze)  # else Python looks for cycles before it ends: 0.2 s after a run
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's would take longer to start than they save
# Arrow and numpy get memory from malloc, and glibc's keeps what blocks give back, for all threads: new pages
# cost more than what is written there. The numbers are M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_ARENA_MAX.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
with contextlib.suppress(AttributeError, OSError):
    for parameter, value in ((-3, 16 << 20), (-1, 64 << 20), (-8, 2)):
        ctypes.CDLL(None).mallopt(parameter, value)

try:
    from tokmill.flows.commands.main import main  # what the lines above speed up
except KeyboardInterrupt:
    sys.exit(130)  # before anything began

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
