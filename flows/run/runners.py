"""Task runners, by name.

A runner changes neither an artifact nor a fingerprint. The executor uses only Prefect's interface (`submit`,
and futures with callbacks), so another runner is one function that opens it and one line in `RUNNERS`. Tasks
in other processes need only their arguments: a request, which can be pickled, and the store's location.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from prefect.task_runners import ThreadPoolTaskRunner

from tokmill.flows.run.machine import RunnerName
from tokmill.flows.run.prefect_task import PrefectTasks
from tokmill.flows.run.tasks import Tasks
from tokmill.tokenizer.core.stopping import allow_work, request_stop


@dataclass(frozen=True)
class Runner:
    """A way to execute tasks.

    Attributes:
        name: as in `Machine.runner`.
        opened: opens one of Prefect's task runners for a number of workers. The end of the block waits for
            the submitted tasks, unless an exception that is not an `Exception` (KeyboardInterrupt, a signal)
            ends it; then the tasks are stopped.
    """

    name: RunnerName
    opened: Callable[[int], AbstractContextManager[Tasks]]


@contextmanager
def _threads(workers: int) -> Iterator[Tasks]:
    runner: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=workers)
    allow_work()
    with ExitStack() as until_done:
        until_done.enter_context(runner)
        try:
            yield PrefectTasks(runner)
        except BaseException as error:
            if not isinstance(error, Exception):  # stop the tasks instead of waiting for them
                request_stop()
                until_done.pop_all()
            raise


RUNNERS: Final[Mapping[RunnerName, Runner]] = {"threads": Runner("threads", _threads)}
