"""Prefect's worker, which has our flows imported before it takes a run, and ends the runs of dead workers.

It is called with a store and the arguments of Prefect's command line. It is named after its process
(`flows.server.orphans`), so that others find out that it has died; when it is stopped, it ends its own
runs at the server. It also checks each cancel at the server (`flows.server.attempt`).

Prefect's worker looks for hooks of a cancelled run in its own process, and so must import the flow. At the
first one that would take seconds of those in which the run is to be shown as Cancelled.
"""

import gc
import runpy
import sys
from importlib import import_module

from tokmill.flows.server.attempt import check_cancels
from tokmill.flows.server.orphans import reconciling, worker_name
from tokmill.tasks.store import Store
from tokmill.tasks.store.leases import Process


def main() -> None:
    """Run Prefect's command line with this process's arguments."""
    store, name = Store.open(sys.argv.pop(1)), worker_name(Process.own())
    pool = sys.argv[sys.argv.index("--pool") + 1]
    sys.argv += ["--name", name]
    import_module("tokmill.flows.run.flow")  # by name: what runs flows imports what serves them
    gc.freeze()  # what is imported is never garbage, and need not be looked through, at the end either
    check_cancels()
    with reconciling(store, _say, pool, name):
        runpy.run_module("prefect", run_name="__main__", alter_sys=True)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the worker's log


if __name__ == "__main__":
    main()
