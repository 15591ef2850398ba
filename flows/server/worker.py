"""Prefect's worker, which has our flows imported before it takes a run, and checks each cancel at the server.

It looks for hooks of a cancelled run in its own process, and so must import the flow. At the first one that
would take seconds of those in which the run is to be shown as Cancelled.
"""

import gc
import runpy
from importlib import import_module

from tokmill.flows.server.attempt import check_cancels


def main() -> None:
    """Run Prefect's command line with this process's arguments."""
    import_module("tokmill.flows.run.flow")  # by name: what runs flows imports what serves them
    gc.freeze()  # what is imported is never garbage, and need not be looked through, at the end either
    check_cancels()
    runpy.run_module("prefect", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
