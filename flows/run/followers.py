"""Has other systems follow a run, where its profile asks for it (`[openlineage]`, `[mlflow]`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from tokmill.flows.errors import ProfileError
from tokmill.flows.profile import Profile
from tokmill.flows.run.dag import Step, references
from tokmill.flows.run.events import Event, RunState
from tokmill.flows.tracking.attempt import Asked, Attempt, End, Follower
from tokmill.tasks.core.stage import External, Request
from tokmill.tasks.store.record import input_entries


def told(follower: Follower, event: Event, state: RunState) -> None:
    """Tell a follower of an event."""
    if event.step is not None and event.request is not None:
        follower.asked(_asked(event.step, event.request))
    elif event.what == "started":
        follower.started(event.task)
    elif event.row is not None:
        follower.finished(event.row)
    elif event.what == "failed":
        follower.failed(event.task, event.text)


def _asked(step: Step, request: Request) -> Asked:
    lists = [ref for ref in references(step) if ref in step.after] if _has_parts(step) else []
    stage, params = step.stage, step.params.model_dump(mode="json", exclude_none=True)
    return Asked(step.title, stage.task, stage.kind, step.name, params, input_entries(request.inputs), lists)


def _has_parts(step: Step) -> bool:
    """Whether an input is a part of an artifact that lists it, and none itself."""
    return any(isinstance(given, External) for given in step.inputs.values())


@contextmanager
def followed(
    profile: Profile, attempt: Attempt, state: RunState, warn: Callable[[str], None]
) -> Iterator[None]:
    """Have those follow the run of this block whom its profile names."""
    followers = list(_followers(profile, attempt, warn))
    for follower in followers:
        state.listeners.append(partial(told, follower))
        follower.begin()
    try:
        yield
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
