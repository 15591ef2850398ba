"""The Markdown summary of a run that failed, which has the place of the summary of one that succeeded.

It answers what a person asks first: what failed, where, why, and what to do about it; then what was made and
stays, what was not begun, and what a retry does. An error of ours says the place, the value and the rule, and
after a semicolon the fix; an error that nobody foresaw has no fix, and is said to be one.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from prefect.artifacts import create_markdown_artifact

from tokmill.flows.errors import FlowError, RunError
from tokmill.flows.figures import counted, span
from tokmill.flows.prefect.artifact_page import Piece
from tokmill.flows.prefect.links import Links, key_of, section, to_key, to_task_run
from tokmill.flows.results import group_of, wall_seconds
from tokmill.flows.run.events import RunState
from tokmill.tasks.core.errors import GateError, MachineError, TaskError
from tokmill.tasks.core.faults import may_pass
from tokmill.tasks.core.markdown import number

_LOG = logging.getLogger(__name__)
_LIMITS = ("limit", "subject", "value", "threshold", "passed", "missing")
_MARKS = re.compile(r"([\\`*_<>\[\]#~])")
_MOST_FAILURES = 10


@contextmanager
def failure_shown(
    publish: Callable[[Callable[[], list[Piece]]], None],
    name: str,
    links: Links,
    task_runs: Mapping[str, UUID],
    state: RunState,
) -> Iterator[None]:
    """Publish a summary if this block fails."""
    try:
        yield
    except Exception as error:
        text = failure_summary(name, links, error, state, task_runs)
        piece = Piece("markdown", key_of("run", name), text, f"failed: {_where(error) or 'no task'}")
        publish(lambda: [piece])
        raise


def show_refused(given: str, error: Exception) -> None:
    """Publish a summary of the current flow run, which is refused before it begins."""
    try:
        key = key_of("run", Path(given).stem)
        create_markdown_artifact(
            key=key, markdown=refusal_summary(given, error), description=f"refused: {given}"
        )
    except Exception as unsent:
        _LOG.warning("the server does not take the summary: %s", unsent)


def failure_summary(
    name: str, links: Links, error: Exception, state: RunState, task_runs: Mapping[str, UUID]
) -> str:
    """Return the summary of a run that failed; see `failure_shown`."""
    cause, where = _cause(error), _where(error)
    failed = f"`{where}` failed" if where else "It failed before any task began"
    rows = [row for row in state.rows if row.how != "cached"]
    took = f" in {span(wall_seconds(rows))}" if rows else ""
    kept = f"{counted(len(state.rows), 'artifact')} of this run {'are' if len(state.rows) != 1 else 'is'}"
    judged = _judged(cause, state, links)
    not_begun = ", ".join(f"`{stage}`" for stage in dict.fromkeys(state.not_begun))
    parts = [
        f"# {name}: failed",
        f"**{failed}**{took}. {kept} in `{links.store}`, and stay there.",
        *section("## What failed", ("", ""), (*_facts(error, cause, where, task_runs), *judged)),
        *section("## Limits of the gate", _LIMITS, _limits(cause)),
        *section("## Also failed", ("task", "why"), _others(error, state)),
        *section("## Made, and kept", ("stage", "done", "result", "time"), _kept(state, cause)),
        *(("## Not begun", not_begun) if not_begun else ()),
        "## What a retry does",
        _retry(cause, where, state),
    ]
    return "\n\n".join(parts) + "\n"


def refusal_summary(given: str, error: Exception) -> str:
    """Return the summary of a run whose profile, or a value given to it, is refused before it begins."""
    problems = "\n".join(f"- {_plain(line)}" for line in str(error).splitlines() if line.strip())
    again = (
        "A retry reads the profile again, so change the file first; values that were given to this run stay "
        "as they are, so for others start a new run (*Copy to new run*)."
    )
    return (
        f"# {_plain(given)}: refused\n\nNothing was begun.\n\n{problems}\n\n## What a retry does\n\n{again}\n"
    )


def _cause(error: Exception) -> BaseException:
    return error.__cause__ if isinstance(error, RunError) and error.__cause__ is not None else error


def _where(error: Exception) -> str | None:
    """Return the title of the task that failed; None if it was none."""
    return "audit" if isinstance(error, GateError) else getattr(error, "task", None)


def _facts(
    error: Exception, cause: BaseException, where: str | None, task_runs: Mapping[str, UUID]
) -> Iterator[tuple[str, str]]:
    problem, fix = _parts(error)
    if where:
        page = f" · {to_task_run('its logs', task_runs[where])}" if where in task_runs else ""
        yield "stage", f"`{group_of(where).removesuffix('[*]')}`"
        yield "task", f"`{where}`{page}"
    yield "problem", _plain(problem or type(error).__name__)
    if isinstance(cause, TaskError | FlowError):
        if fix:
            yield "fix", _plain(fix)
        yield "kind", f"`{type(cause).__name__}`: {_plain(_first_line(cause))}"
    else:
        if fix:
            yield "more", _plain(fix)
        yield "kind", f"`{type(cause).__name__}`, which nobody foresaw here: the log has its traceback"


def _parts(error: Exception) -> tuple[str, str]:
    """Return what is wrong and what to do; a message with several semicolons is not taken apart."""
    text = str(error)
    if isinstance(error, GateError) and error.verdict in text:
        before, verdict, fix = text.partition(error.verdict)
        return before + verdict, fix.removeprefix("; ")
    problem, _, fix = text.partition("; ")
    return (text, "") if "; " in fix else (problem, fix)


def _first_line(error: BaseException) -> str:
    return (type(error).__doc__ or "").split("\n", maxsplit=1)[0].rstrip(".")


def _judged(cause: BaseException, state: RunState, links: Links) -> Iterator[tuple[str, str]]:
    """The audit whose gate failed, with its report."""
    for row in state.rows if isinstance(cause, GateError) else ():
        if row.ref.kind == "audit":
            page = to_key(f"audit/{row.ref.name}", key_of("audit", row.ref.name))
            yield "audit", " · ".join(part for part in (page, links.report(row.ref)) if part)


def _limits(cause: BaseException) -> list[tuple[str, ...]]:
    found = cause.limits if isinstance(cause, GateError) else ()
    return [tuple(_cell(row.get(name)) for name in _LIMITS) for row in found]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def _others(error: Exception, state: RunState) -> list[tuple[str, str]]:
    others = [(title, _plain(str(failure))) for title, failure in state.failures if failure is not error]
    more = len(others) - _MOST_FAILURES
    return others[:_MOST_FAILURES] + ([("…", f"and {more} more")] if more > 0 else [])


def _kept(state: RunState, cause: BaseException) -> Iterator[tuple[str, str, str, str]]:
    for group in state.stages:
        rows, num_steps = group.rows, group.num_tasks
        if rows:
            worked = [row for row in rows if row.how != "cached"]
            of = f" of {number(num_steps)}" if len(rows) < num_steps else ""
            result = "cached" if not worked else f"{number(len(worked))} made" if of else "made"
            refused = isinstance(cause, GateError) and rows[0].ref.kind == "audit"
            result = "gate failed" if refused else result
            yield group.name, f"{number(len(rows))}{of}", result, span(wall_seconds(worked)) if worked else ""


def _retry(cause: BaseException, where: str | None, state: RunState) -> str:
    found = f"finds the {counted(len(state.rows), 'artifact')} above" if state.rows else "begins anew"
    then = f", and goes on with `{where}`" if where else ""
    does = f"*Retry* reads the profile again, {found}{then}; so does any later run with the same values."
    if may_pass(cause):
        return f"{does} The fault is of a kind that passes: it is worth a try as it is."
    if isinstance(cause, MachineError):
        return f"{does} It fails again unless the machine has what it lacked."
    if isinstance(cause, TaskError | FlowError):
        return (
            f"{does} With the same profile and the same text it fails again: do what the message says first."
        )
    return does


def _plain(text: str) -> str:
    """Return a text as it is, for Markdown."""
    return _MARKS.sub(r"\\\1", text)
