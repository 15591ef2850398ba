"""Runs a module that must not outlive whoever starts it: `python -P tethered.py DESCRIPTOR MODULE ARGUMENT…`.

The descriptor is the reading end of a pipe whose writing end the parent alone holds. However the parent
ends, by SIGKILL too, which it cannot answer, the pipe ends with it; this process then ends its whole
process group at once. What runs here is safe against that: a database with a journal, artifacts that are
published whole.

Started as a file and not as `-m tokmill.flows.…`, so that no `tokmill` of the working directory takes its
place. It imports nothing of ours.
"""

import os
import runpy
import signal
import sys
import threading


def _end_with(parent: int) -> None:
    """Wait for the end of the pipe, then end everybody in this process group."""
    while os.read(parent, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    """Watch the pipe from a thread, and be the module."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    os.set_inheritable(parent, False)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with, args=(parent,), name="tether", daemon=True).start()
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
