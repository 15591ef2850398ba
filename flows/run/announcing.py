"""Tells people how a run ended, if its profile says so (`[notify]`); see docs/operations.md for the message.

There is one message per attempt of a run, sent after the end is recorded. `announcing` surrounds a run of
this process from the moment its profile is known, so that a run that does not even begin is told of, too; a
run that a worker starts has its announcer in `recording.recorded` alone. No failure here changes the run.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from tokmill.flows.errors import RunError
from tokmill.flows.profile import Profile
from tokmill.flows.profile.notify import Event
from tokmill.flows.run.progress import group_of
from tokmill.flows.run.results import RunResult
from tokmill.tasks.audit.gates import not_passed
from tokmill.tasks.core.errors import GateError, StoreError
from tokmill.tasks.store import Store
from tokmill.tasks.store.runs import State, read_run, run_path

SCHEMA = 1
_LOG = logging.getLogger(__name__)


class Announcer:
    """Tells of one run, once.

    Args:
        profile: of the run.
        location: of the store.
        warn: called with a sentence about a message that could not be delivered.
        link: the run's page, if a server shows it.
    """

    def __init__(
        self, profile: Profile, location: str, warn: Callable[[str], None], link: str | None = None
    ) -> None:
        self._profile = profile
        self._location = location
        self._warn = warn
        self._link = link
        self._began = time.time()
        self._told = False

    def shown_at(self, link: str | None) -> Self:
        """Set the run's page."""
        self._link = link
        return self

    def completed(self, store: Store, result: RunResult) -> None:
        """Tell of a run that completed."""
        self._tell(lambda: _End("completed", "", result.run_id, _made(store, result)))

    def ended(self, error: BaseException, store: Store | None = None, run_id: str | None = None) -> None:
        """Tell of a run that did not complete.

        Args:
            error: what ended it.
            store: where its end is recorded, if it was begun.
            run_id: under which id.
        """
        hurried = not isinstance(error, Exception)
        self._tell(lambda: _End(*_recorded_end(error, store, run_id), run_id, _failed(error)), hurried)

    def _tell(self, find_out: Callable[[], "_End"], hurried: bool = False) -> None:
        if self._told or not self._profile.notify.wanted:
            return
        self._told = True
        try:
            self._send(find_out(), hurried)
        except Exception as error:  # the run has its outcome, whatever becomes of the message
            self._warn(f"notify: no message was sent ({type(error).__name__}); the run is not affected")

    def _send(self, end: "_End", hurried: bool) -> None:
        from tokmill.flows.notify.sending import deliver  # noqa: PLC0415 - few runs tell anybody

        event, ended = _event(end), time.time()
        if event not in self._profile.notify.on or end.state == "suspended":  # which goes on some day
            return
        name = self._profile.name
        told = {
            "schema": SCHEMA,
            "event": event,
            "run": end.run_id,
            "profile": name,
            "store": self._location,
            "state": end.state,
            "message": end.message,
            "text": f"tokmill: {name} {end.state}" + (f": {end.message}" if end.message else ""),
            "began": _moment(self._began),
            "ended": _moment(ended),
            "seconds": round(ended - self._began, 3),
            "prefect": self._link,
            **end.facts,
        }
        deliver(self._profile.notify, told, self._warn, hurried)


class _End(NamedTuple):
    state: State
    message: str
    run_id: str | None
    facts: Mapping[str, Any]


_CURRENT: ContextVar[Announcer | None] = ContextVar("announcer", default=None)


@contextmanager
def announcing(profile: Profile, location: str, warn: Callable[[str], None]) -> Iterator[None]:
    """Tell of the run of this block, also if it fails before it is recorded; see `Announcer`."""
    announcer = Announcer(profile, location, warn)
    token = _CURRENT.set(announcer)
    try:
        yield
    except BaseException as error:
        announcer.ended(error)
        raise
    finally:
        _CURRENT.reset(token)


def announcer_of(
    profile: Profile, store: Store, warn: Callable[[str], None] = _LOG.warning, link: str | None = None
) -> Announcer:
    """Return the announcer of this run: that of the block around it, or a new one for a worker's run."""
    current = _CURRENT.get() or Announcer(profile, store.location, warn)
    return current.shown_at(link)


def _event(end: _End) -> Event:
    gate = end.facts["gate"]
    if gate is not None and not_passed(gate["verdict"]):
        return "gate"
    return "completion" if end.state == "completed" else "failure"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _recorded_end(error: BaseException, store: Store | None, run_id: str | None) -> tuple[State, str]:
    """Return the state and the message in the run's record; those of the error if there is none."""
    if store is not None and run_id is not None:
        try:
            run = read_run(run_path(store.layout.runs, run_id))
        except StoreError as unread:
            _LOG.info("the end of run %s is not recorded: %s", run_id, unread)
        else:
            if run.state not in ("running", "completed"):
                return run.state, run.message
    message = str(error) or type(error).__name__
    if isinstance(error, Exception):
        return "failed", message
    return "cancelled" if isinstance(error, KeyboardInterrupt) else "crashed", message


def _failed(error: BaseException) -> dict[str, Any]:
    task = error.task if isinstance(error, RunError) else None
    gate = None
    if isinstance(error, GateError):
        task, gate = "audit", {"verdict": error.verdict, "limits": list(error.limits)}
    cause = error.__cause__ if isinstance(error, RunError) and error.__cause__ else error
    stage = None if task is None else group_of(task).removesuffix("[*]")
    failed = {"stage": stage, "task": task, "error": type(cause).__name__}
    return {"failed": failed, "gate": gate, "tasks": None, "figures": {}, "artifacts": []}


def _made(store: Store, result: RunResult) -> dict[str, Any]:
    rows = {row.ref: row for row in result.rows}
    artifacts, figures = [], {}
    for kind, ref in result.refs.items():
        record, row = store.record(ref), rows.get(ref)
        figures[kind] = dict(record.metrics)
        artifacts.append(
            {
                "kind": ref.kind,
                "artifact": record.reference,
                "fingerprint": ref.fingerprint,
                "content_digest": ref.content_digest,
                "bytes": record.num_bytes,
                "how": None if row is None else row.how,
                "seconds": None if row is None else round(row.seconds, 3),
            }
        )
    tasks = {"made": result.num_made, "cached": result.num_cached, "waited": result.num_waited}
    gate = _gate(store, result)
    return {"failed": None, "gate": gate, "tasks": tasks, "figures": figures, "artifacts": artifacts}


def _gate(store: Store, result: RunResult) -> dict[str, Any] | None:
    """Return the verdict of the run's audit with its limits; None without an audit."""
    from tokmill.tasks.audit.summary import read_summary  # noqa: PLC0415 - only for a message

    audit = result.refs.get("audit")
    if audit is None:
        return None
    summary = read_summary(store.place(audit))
    return {"verdict": summary.gate, "limits": summary.limits}
