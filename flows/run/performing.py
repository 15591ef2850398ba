"""The body of a task, whoever runs it: publishes an artifact, unless the store has it.

A fault that may pass (a network share, a device, a service) is tried again after a pause; any other is not,
because it would come again. Prefect's own retries are not used: they wait where nothing can interrupt them,
and there are none without Prefect. A stage that runs longer than it may is stopped at the next place where
it looks (`tokenizer.core.stopping`), between two slices of its kernels.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial

from tokmill.flows.run.limits import num_seconds
from tokmill.flows.run.machine import supply_credentials
from tokmill.flows.run.tasks import CALLBACKS, TaskSpec
from tokmill.tasks.core.context import (
    memory_limited_to,
    progress_reported_to,
    remarks_reported_to,
    time_limited_to,
)
from tokmill.tasks.core.errors import TimeLimitError
from tokmill.tasks.core.faults import may_pass
from tokmill.tasks.store import Store
from tokmill.tasks.store.build import Realized
from tokmill.tokenizer.core.stopping import TimeLimitReached, raise_if_stopped

_LOG = logging.getLogger("tokmill.tasks")  # whose warnings a run shows
_LOOK_SECONDS = 0.1
_never = threading.Event()


def perform(spec: TaskSpec, title: str, report: Callable[[str], None]) -> Realized:
    """Publish a task's artifact, unless the store has it.

    Args:
        spec: what is requested, and where it goes.
        title: of the task; the callbacks are told of it.
        report: called with messages, and with the stage's remarks.

    Raises:
        TaskError, TokenizerError: the stage's parameters or inputs are invalid.
        TimeLimitError: the stage ran for longer than it may.
        StopRequested: the run is being stopped (`tokenizer.core.stopping`).
    """
    raise_if_stopped()
    supply_credentials(spec.credentials)
    callbacks = CALLBACKS.get()
    if callbacks:
        callbacks.on_start(title)
    watcher = partial(callbacks.on_progress, title) if callbacks else None
    remarks = remarks_reported_to(report)
    with memory_limited_to(spec.memory_bytes), progress_reported_to(watcher), remarks:
        limits = spec.limits
        realized = _tried_again(partial(_once, spec, report), title, limits.retries, limits.pause)
    if callbacks:
        callbacks.on_end(title, realized.how)
    return realized


def _tried_again(work: Callable[[], Realized], title: str, retries: int, pause: float) -> Realized:
    """Return what `work` returns, in the first attempt that succeeds; log the others as warnings.

    Args:
        work: does the work; after a failure it leaves nothing behind.
        title: its name in the warnings.
        retries: further attempts.
        pause: seconds before the first of these; before each further one it is twice as long.

    Raises:
        Exception: that of the last attempt, or one that would come again.
        StopRequested: a stop was requested during a pause.
    """
    for number in range(retries):
        try:
            return work()
        except Exception as error:
            if not may_pass(error):
                raise
            attempt = f"attempt {number + 1} of {retries + 1}"
            _LOG.warning("%s: %s failed (%s); the next is in %g s", title, attempt, error, pause * 2**number)
        _wait(pause * 2**number)
    return work()


def _wait(seconds: float) -> None:
    while seconds > 0:
        raise_if_stopped()
        _never.wait(min(seconds, _LOOK_SECONDS))
        seconds -= _LOOK_SECONDS
    raise_if_stopped()


def _once(spec: TaskSpec, report: Callable[[str], None]) -> Realized:
    stage = spec.request.stage.task
    limit = spec.limits.of_stage(stage)
    try:
        with time_limited_to(None if limit is None else num_seconds(limit)):
            return Store.open(spec.store).realize(
                spec.request,
                provenance=spec.provenance,
                report=report,
                verify=spec.verify,
                refresh=spec.refresh,
            )
    except Exception:
        raise_if_stopped()  # a query that was interrupted is no failure
        raise
    except TimeLimitReached as reached:
        raise TimeLimitError(
            f"{stage}: it was stopped after {limit}, its time limit; raise execution.timeouts.{stage} (or "
            "execution.timeout), or give it less text or more cores"
        ) from reached
