"""Task runners: where the tasks of a run are executed, chosen by name.

A runner bears no identity: it changes neither an artifact nor a fingerprint. The executor asks only for
Prefect's interface (`submit`, and futures that call back), so a further runner is one function that opens it
and one line in `RUNNERS`. Tasks that run in other processes need no more than their arguments: a request,
which pickles, and the store's location.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from tokmill.flows.run.machine import RunnerName
from tokmill.tokenizer.core.stopping import allow_work, request_stop


@dataclass(frozen=True)
class Runner:
    """A way to execute tasks.

    Attributes:
        name: as in `Machine.runner`.
        opened: opens Prefect's task runner for a number of workers. The block waits for the submitted tasks,
            unless it is left by KeyboardInterrupt, a signal or another exception that is no `Exception`; then
            the tasks are stopped.
    """

    name: RunnerName
    opened: Callable[[int], AbstractContextManager[TaskRunner[Any]]]


@contextmanager
def _threads(workers: int) -> Iterator[TaskRunner[Any]]:
    runner: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=workers)
    allow_work()
    with ExitStack() as until_done:
        until_done.enter_context(runner)
        try:
            yield runner
        except BaseException as error:
            if not isinstance(error, Exception):  # told to end: do not wait for the tasks, have them stop
                request_stop()
                until_done.pop_all()
            raise


RUNNERS: Final[Mapping[RunnerName, Runner]] = {"threads": Runner("threads", _threads)}
