"""`python -m tokmill` is the same as `tokmill`."""

import gc
import sys

# Hardly anything that a command makes while it starts is rubbish, and most of what follows is freed by counts
# of references: to look for cycles as often as Python does would take an eighth of the time.
gc.set_threshold(100_000, 10, 10)

try:
    from tokmill.flows.commands import main as commands  # what the line above speeds up
except KeyboardInterrupt:
    sys.exit(130)  # before anything began


def main() -> int:
    """Run the command of this process's arguments and return its exit code; the process ends then."""
    try:
        return commands.main()
    finally:
        gc.freeze()  # else Python looks for cycles in all that there is before it ends: 0.2 s after a run


if __name__ == "__main__":
    sys.exit(main())
