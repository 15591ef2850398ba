"""Runs a module that must not outlive its parent: `python -P tether.py DESCRIPTOR MODULE ARGUMENT…`.

The descriptor is the reading end of a pipe; when the parent ends, even by SIGKILL, the pipe is closed, and
this process kills its group. It is started as a file, so that no package `tokmill` of the working directory
is imported instead, and imports nothing of ours.
"""

import os
import runpy
import signal
import sys
import threading


def _end_with(parent: int) -> None:
    """Wait until the pipe is closed, then kill this process group."""
    while os.read(parent, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    """Watch the pipe in a thread, and run the module."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    os.set_inheritable(parent, False)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts background jobs like this
        signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with, args=(parent,), name="tether", daemon=True).start()
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
