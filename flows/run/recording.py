"""The record of a run in the store's catalog, from its start to its end, however it ends."""

from collections.abc import Callable

from tokmill.flows.profile import Profile
from tokmill.flows.run.results import RunResult
from tokmill.tasks.store import Provenance, RunArtifact, Store


def recorded(
    profile: Profile,
    store: Store,
    run_id: str,
    provenance: Provenance,
    execute: Callable[[], RunResult],
    note_end: Callable[[BaseException], None],
) -> RunResult:
    """Execute a run, and record its start and end in the catalog.

    Args:
        profile: the resolved profile, which is recorded.
        store: whose catalog has the run.
        run_id: the run's key there.
        provenance: of the run.
        execute: does the work.
        note_end: records the end of a run that does not complete.

    Raises:
        BaseException: any that `execute` raises.
    """
    with store.catalog.alive(run_id):
        try:
            parameters = profile.resolved()
            store.catalog.add_run(run_id, profile=profile.name, parameters=parameters, provenance=provenance)
            result = execute()
            artifacts = [RunArtifact(task=row.task, ref=row.ref, how=row.how) for row in result.rows]
            store.catalog.finish_run(run_id, state="completed", artifacts=artifacts)
        except BaseException as error:
            note_end(error)
            raise
    return result
