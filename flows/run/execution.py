"""Runs the steps of a composition as Prefect tasks: submits, waits, reports.

Mapped steps are submitted together and run side by side on the flow's task runner; the stage that follows
waits for them. If one of them fails the others still finish, and stay published, before the first failure
(in the order of the steps) is raised: a rerun pays only for what failed.
"""

import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import TaskRunner
from prefect.utilities.annotations import quote

from tokmill.flows.errors import RunError
from tokmill.flows.run.composition import Step, references
from tokmill.flows.run.letting_go import let_go
from tokmill.flows.run.prefect_task import Ask, Told, as_task
from tokmill.flows.run.progress import Reporter, group_of
from tokmill.flows.run.results import RunRow
from tokmill.tasks.core.stage import ArtifactRef, How
from tokmill.tasks.store import Provenance, Store, Verify

_SOURCE = re.compile(r"\[(.+)/\d+\]$")  # of a task over shards: `encode[english/3]`


class PrefectExecutor:
    """An executor that makes artifacts; see `flows.run.composition.Executor`.

    Attributes:
        rows: what each task did, in the order of the steps.
        memory_bytes: what one task may take of memory; see `tasks.core.machine`.
        provenance: of the run, for the artifacts that it makes.
    """

    def __init__(
        self,
        store: Store,
        runner: TaskRunner[Any],
        reporter: Reporter,
        verify: Verify = "sizes",
        memory_bytes: int | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self.store = store
        self.runner = runner
        self.reporter = reporter
        self.verify = verify
        self.memory_bytes = memory_bytes
        self.provenance = provenance
        self.rows: list[RunRow] = []
        self._started: dict[str, float] = {}
        self._ended: dict[str, How] = {}
        self._futures: dict[ArtifactRef, PrefectFuture[Any]] = {}

    def one(self, step: Step) -> ArtifactRef:
        """Run one step and return its artifact."""
        return self.each([step])[0]

    def each(self, steps: Sequence[Step]) -> list[ArtifactRef]:
        """Run the steps side by side and return their artifacts in order.

        Raises:
            RunError: a task failed; the message names the task and is otherwise the failure's own.
        """
        for group, num_tasks in Counter(group_of(step.title) for step in steps).items():
            self.reporter.expect(group, num_tasks)
        with Told(self._begin, self.reporter.on_progress, self._ended.__setitem__).of_tasks():
            futures = {self._submit(step): step for step in steps}
        ended = {future: self._end(futures[future], future) for future in as_completed(list(futures))}
        _let_go_of_untold([ended[future] for future in futures])
        rows = [_row_or_raise(step, ended[future]) for future, step in futures.items()]
        self.rows += rows
        self._futures |= {row.ref: future for row, future in zip(rows, futures, strict=True)}
        return [row.ref for row in rows]

    def path(self, node: ArtifactRef) -> Path:
        """Where a published artifact's files are."""
        return self.store.path(node)

    def _begin(self, title: str) -> None:
        self._started[title] = time.monotonic()
        self.reporter.on_start(title)

    def _submit(self, step: Step) -> PrefectFuture[Any]:
        ask = Ask(step.request(), self.store.root, self.verify, self.memory_bytes, self.provenance)
        parents = {ref: self._futures[ref] for ref in references(step) if ref in self._futures}
        arguments = {"ask": quote(ask), "title": step.title}
        task = as_task(ask, step.title)
        future: PrefectFuture[Any] = self.runner.submit(task, arguments, wait_for=list(parents.values()))
        return future

    def _end(self, step: Step, future: PrefectFuture[Any]) -> RunRow | BaseException:
        """Tell the reporter how a task ended, and return its row or its failure."""
        future.wait()  # completed, but until it is waited for it may not have its final state at hand
        state = future.state
        outcome = future.result(raise_on_failure=False)
        if not state.is_completed():
            failure = outcome if isinstance(outcome, BaseException) else RunError(str(state.message))
            self.reporter.on_fail(step.title, str(failure))
            return failure
        how: How = "cached" if state.name == "Cached" else self._ended.get(step.title, "made")
        now = time.monotonic()
        began = now if how == "cached" else self._started.get(step.title, now)
        seconds, metrics = now - began, self.store.record(outcome).metrics
        row = RunRow(step.title, outcome, how, seconds, metrics, began)
        self.reporter.on_finish(step.title, how, seconds, outcome, row.metrics)
        return row


def _row_or_raise(step: Step, end: RunRow | BaseException) -> RunRow:
    if isinstance(end, RunRow):
        return end
    raise RunError(_titled(step, str(end))) from end


def _let_go_of_untold(ends: Sequence[RunRow | BaseException]) -> None:
    """Free what failures hold that are not raised: only the first is."""
    for failure in [end for end in ends if isinstance(end, BaseException)][1:]:
        let_go(failure)


def _titled(step: Step, message: str) -> str:
    """Put the task's title before a message, in place of what the message says of stage and source itself."""
    rest = message.removeprefix(f"{step.stage.task}: ")
    source = _SOURCE.search(step.title)
    if source is not None:
        rest = rest.removeprefix(f"source '{source[1]}': ")
    return f"{step.title}: {rest}"
