"""Prefect's worker, which has our flows imported before it takes a run, and ends the runs of dead workers.

It is called with a store and the arguments of Prefect's command line. It is named after its process
(`flows.prefect.orphans`), so that others find out that it has died; when it is stopped, it ends its own runs
at the server. Prefect looks for hooks of a cancelled run in this process. So the flows are imported first:
it takes seconds, which the run would wait for before it is shown as Cancelled.
"""

import gc
import runpy
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from prefect.client.orchestration import get_client

from tokmill.flows.prefect import flow  # noqa: F401 - see above
from tokmill.flows.prefect.orphans import LOOK_SECONDS, UNANSWERED, forget_worker, reconcile, worker_name
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.store import Store
from tokmill.tasks.store.leases import Process


def main() -> None:
    """Run Prefect's command line with this process's arguments, and end dead runs meanwhile."""
    store, name = Store.open(sys.argv.pop(1)), worker_name(Process.own())
    pool = sys.argv[sys.argv.index("--pool") + 1]
    sys.argv += ["--name", name]
    gc.freeze()  # what is imported is never garbage, and need not be looked through, at the end either
    stopped = threading.Event()

    def keep_looking() -> None:
        _look(store, pool)
        while not stopped.wait(LOOK_SECONDS):
            _look(store, pool)

    threading.Thread(target=keep_looking, name="dead runs", daemon=True).start()
    try:
        runpy.run_module("prefect", run_name="__main__", alter_sys=True)
    finally:
        stopped.set()
        _look(store, pool, gone=[name])


def _look(store: Store, pool: str, gone: Sequence[str] = ()) -> None:
    """End dead runs, and those of workers that are `gone`, which are removed from the pool's list."""
    # A server or bucket that does not answer, or a full disk: the next look, or the next worker, does it.
    with suppress(*UNANSWERED, TaskError), get_client(sync_client=True) as client:
        for run in reconcile(store, client, gone):
            line = f"the run {run} is marked as crashed: its process no longer exists"
            print(line, flush=True)  # noqa: T201 - the worker's log
        for worker in gone:
            forget_worker(client, pool, worker)


if __name__ == "__main__":
    main()
