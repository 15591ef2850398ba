"""Prefect's task runners, by name; none changes an artifact or a fingerprint.

Another one is a function that makes it and a line in `RUNNERS`: tasks need Prefect's interface alone, and in
other processes their arguments, which can be pickled.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeAlias

from prefect.exceptions import Pause, TerminationSignal
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from tokmill.flows.errors import UsageError
from tokmill.flows.prefect.task import PrefectTasks, held
from tokmill.flows.process import end_descendants
from tokmill.flows.run.machine import Machine, RunnerName
from tokmill.tokenizer.core.stopping import allow_work, request_stop

Open: TypeAlias = Callable[[Machine], AbstractContextManager[PrefectTasks]]
"""Opens one of Prefect's task runners. The end of the block waits for the submitted tasks, unless a signal or
Ctrl-C ends it; then those of this process are stopped. After a signal nothing is closed, because the process
ends soon, with all that it started (`flows.process`)."""


@contextmanager
def _threads(machine: Machine) -> Iterator[PrefectTasks]:
    allow_work()
    held.clear()
    with ExitStack() as until_done:
        runner = until_done.enter_context(ThreadPoolTaskRunner[Any](max_workers=machine.workers))
        try:
            yield PrefectTasks(runner, machine.workers, here=True)
        except BaseException as error:
            if not isinstance(error, Exception | Pause):  # stop the tasks instead of waiting for them
                request_stop()
                until_done.pop_all()
            raise


@contextmanager
def _elsewhere(made: Callable[[Machine], TaskRunner[Any]], machine: Machine) -> Iterator[PrefectTasks]:
    """Open a runner whose tasks are in other processes."""
    # what a cluster prints of itself (Ray: a lost node) is no part of a run's result
    with redirect_stdout(sys.stderr), ExitStack() as until_done:
        terminating = signal.getsignal(signal.SIGTERM)
        runner = until_done.enter_context(made(machine))
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminating)  # Ray replaces the handler
        try:
            yield PrefectTasks(runner, machine.workers, here=False)
        except TerminationSignal:
            end_descendants()
            until_done.pop_all()
            raise


def _dask(machine: Machine) -> TaskRunner[Any]:
    local = {"n_workers": machine.workers, "threads_per_worker": 1, "dashboard_address": None}
    where = {"cluster_kwargs": local} if machine.address is None else {"address": machine.address}
    return _imported("dask", "prefect_dask").DaskTaskRunner(**where)  # type: ignore[no-any-return]


def _ray(machine: Machine) -> TaskRunner[Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
    quiet = {"log_to_driver": False}  # to standard output, where a script reads JSON
    local = {} if machine.address else {"num_cpus": machine.workers, "include_dashboard": False}
    # "local" starts one for the run, also where another cluster is at work on this machine
    runner = _imported("ray", "prefect_ray").RayTaskRunner
    return runner(address=machine.address or "local", init_kwargs=quiet | local)  # type: ignore[no-any-return]


def _imported(extra: RunnerName, module: str) -> Any:
    """Import Prefect's integration, or say which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"execution.runner={extra!r} needs an extra that is not installed ({error}); "
            f"install it with: python -m pip install 'tokmill[{extra}]'"
        ) from error


RUNNERS: Final[Mapping[RunnerName, Open]] = {
    "threads": _threads,
    "processes": _threads,
    "dask": partial(_elsewhere, _dask),
    "ray": partial(_elsewhere, _ray),
}
