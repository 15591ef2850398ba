"""The record of a run in the store's catalog, from its start to its end, however it ends.

Once the end is recorded, those are told of it whom the profile names (`announcing`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tokmill.flows.run.announcing import Announcer
from tokmill.flows.run.results import RunResult
from tokmill.flows.run.so_far import SoFar
from tokmill.tasks.store import Store
from tokmill.tasks.store.runs import Begun


@contextmanager
def recorded(
    store: Store,
    run_id: str,
    begun: Begun,
    so_far: SoFar,
    note_end: Callable[[BaseException], None],
    announcer: Announcer,
) -> Iterator[Callable[[RunResult], None]]:
    """Record the start and the end of the run that is executed in this block.

    Yields:
        what is to be called with the result, once there is one.

    Args:
        store: whose catalog has the run.
        run_id: the run's key there.
        begun: what is known of it at its start.
        so_far: what it has at its end.
        note_end: records the end of a run that does not complete.
        announcer: tells people of the end.

    Raises:
        BaseException: any that the block raises.
    """
    results: list[RunResult] = []

    def completed(result: RunResult) -> None:
        so_far.rows, so_far.refs = lambda: result.rows, result.refs
        store.catalog.finish_run(run_id, state="completed", found=so_far.found())
        results.append(result)

    with store.catalog.alive(run_id, begun.profile):
        try:
            store.catalog.add_run(run_id, begun=begun)
            yield completed
        except BaseException as error:
            note_end(error)
            announcer.ended(error, store, run_id)
            raise
    for result in results:
        announcer.completed(store, result)
