"""Has other systems follow a run, where its profile asks for it (`[openlineage]`, `[mlflow]`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile import Profile
from tokmill.flows.results import RunRow
from tokmill.flows.run.dag import Step, references
from tokmill.flows.run.progress import Both, Reporter
from tokmill.flows.tracking.attempt import Asked, Attempt, End
from tokmill.tasks.core.stage import External
from tokmill.tasks.store.record import input_entries


class Follower(Protocol):
    """A system that is told of an attempt."""

    def begin(self) -> None:
        """The attempt begins."""

    def asked(self, task: Asked) -> None:
        """A task is about to be submitted."""

    def started(self, title: str) -> None:
        """A task starts."""

    def finished(self, row: RunRow) -> None:
        """A task has its artifact."""

    def failed(self, title: str, message: str) -> None:
        """A task has failed."""

    def end(self, end: End, message: str = "") -> None:
        """The attempt has ended."""


class Following(Reporter):
    """Passes a run's progress on to a follower; see `Reporter`."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def on_submit(self, step: Step) -> None:
        """A task is about to be submitted."""
        request = step.request()
        lists = [ref for ref in references(step) if ref in step.after] if _has_parts(step) else []
        stage, params = step.stage, step.params.model_dump(mode="json", exclude_none=True)
        inputs = input_entries(request.inputs)
        self._follower.asked(Asked(step.title, stage.task, stage.kind, step.name, params, inputs, lists))

    def on_start(self, task_name: str) -> None:
        """A task starts."""
        self._follower.started(task_name)

    def on_finish(self, row: RunRow) -> None:
        """A task has its artifact."""
        self._follower.finished(row)

    def on_fail(self, task_name: str, message: str) -> None:
        """A task failed."""
        self._follower.failed(task_name, message)


def _has_parts(step: Step) -> bool:
    """Whether an input is a part of an artifact that lists it, and none itself."""
    return any(isinstance(given, External) for given in step.inputs.values())


@contextmanager
def followed(
    profile: Profile, attempt: Attempt, reporter: Reporter, warn: Callable[[str], None]
) -> Iterator[Reporter]:
    """Have those follow the run of this block whom its profile names.

    Args:
        profile: of the run.
        attempt: what the followers are told of it.
        reporter: what the caller is told of the run's progress.
        warn: called with a sentence about messages that were not taken.

    Yields:
        what is to be told of the run's progress, the given reporter among them.

    Raises:
        ProfileError: what a follower needs is not installed.
        BaseException: any that the block raises.
    """
    followers = list(_followers(profile, attempt, warn))
    told = reporter
    for follower in followers:
        told = Both(told, Following(follower))
        follower.begin()
    try:
        yield told
    except BaseException as error:
        end: End = "failed" if isinstance(error, Exception) else "stopped"
        for follower in followers:
            follower.end(end, str(error) or type(error).__name__)
        raise
    for follower in followers:
        follower.end("completed")


def _followers(profile: Profile, attempt: Attempt, warn: Callable[[str], None]) -> Iterator[Follower]:
    if profile.openlineage.to is not None:
        with _installed("openlineage"):
            from tokmill.flows.tracking.lineage_events import LineageEvents  # noqa: PLC0415 - an extra
        yield LineageEvents(profile.openlineage, attempt, warn)
    if profile.mlflow.tracking_uri is not None:
        with _installed("mlflow"):
            from tokmill.flows.tracking.mlflow_runs import MLflowRun  # noqa: PLC0415 - an extra
        yield MLflowRun(profile.mlflow, attempt, warn)


@contextmanager
def _installed(extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != extra:
            raise
        raise ProfileError(
            f"[{extra}]: {error.name} is not installed; pip install 'tokmill[{extra}]', or leave the "
            "section out"
        ) from error
