"""The record of a run in the store's catalog, from its start to its end, however it ends.

Once the end is recorded, those are told of it whom the profile names (`announcing`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tokmill.flows.profile import Profile
from tokmill.flows.run.announcing import Announcer
from tokmill.flows.run.results import RunResult
from tokmill.tasks.store import Provenance, RunArtifact, Store


@contextmanager
def recorded(
    profile: Profile,
    store: Store,
    run_id: str,
    provenance: Provenance,
    note_end: Callable[[BaseException], None],
    announcer: Announcer,
) -> Iterator[Callable[[RunResult], None]]:
    """Record the start and the end of the run that is executed in this block.

    Yields:
        what is to be called with the result, once there is one.

    Args:
        profile: the resolved profile, which is recorded.
        store: whose catalog has the run.
        run_id: the run's key there.
        provenance: of the run.
        note_end: records the end of a run that does not complete.
        announcer: tells people of the end.

    Raises:
        BaseException: any that the block raises.
    """
    results: list[RunResult] = []

    def completed(result: RunResult) -> None:
        artifacts = [RunArtifact(task=row.task, ref=row.ref, how=row.how) for row in result.rows]
        store.catalog.finish_run(run_id, state="completed", artifacts=artifacts)
        results.append(result)

    with store.catalog.alive(run_id, profile.name):
        try:
            parameters = profile.for_record()
            store.catalog.add_run(run_id, profile=profile.name, parameters=parameters, provenance=provenance)
            yield completed
        except BaseException as error:
            note_end(error)
            announcer.ended(error, store, run_id)
            raise
    for result in results:
        announcer.completed(store, result)
