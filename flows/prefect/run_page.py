"""The Markdown summary that every run publishes as an artifact in the Prefect UI.

Of a run that succeeded, figures, overrides, what was made and why, and lineage; of one that failed, where,
why, the fix, and what a retry does. Every figure comes from a record.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from tokmill.flows.errors import FlowError, RunError
from tokmill.flows.figures import counted, labelled, percentage, span
from tokmill.flows.prefect.artifact_page import Links, Piece, key_of, section, to_key
from tokmill.flows.profile import Profile
from tokmill.flows.profile.fields import value_in_words
from tokmill.flows.results import RunResult, RunRow, group_of, wall_seconds
from tokmill.flows.run.events import RunState
from tokmill.tasks.core.errors import GateError, MachineError, StoreError, TaskError
from tokmill.tasks.core.faults import may_pass
from tokmill.tasks.core.markdown import number
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store, lineage, payload_differences

_DECIDE: Final[Mapping[str, Sequence[str]]] = {
    "card": ("mixture_bytes_per_token",),
    "audit": ("gate", "bytes_per_token", "unknown_share", "fertility", "max_premium", "unused_share"),
    "usage": ("never_encoded_share",),
    "tokenizer": ("vocab_size",),
    "packed": (
        *("num_tokens", "num_sequences", "sequence_length", "padding_share"),
        *("share_deviation", "request_share_deviation"),
    ),
    "corpus": ("num_documents", "num_bytes", "num_quarantined"),
}
"""The figures that decide, by kind, in the order in which they are shown."""
_TEXTS: Final = {
    "held_out": " (held-out documents)",
    "corpus": " (a sample of the corpus)",
    "training": " (training text)",
    "text": " (text that was measured)",
}
"""The text that a figure of the audit was measured on, but for those that are of no text."""
_OF_NO_TEXT: Final = ("gate", "max_premium")
_SHARES: Final = {"balance": "training text", "mixture": "training tokens"}
_LIMITS: Final = ("limit", "subject", "value", "threshold", "passed", "missing")
_DETAILS, _LOOKED_AT, _MOST_FAILURES = 4, 20, 10
_MARKS: Final = re.compile(r"([\\`*_<>\[\]#~])")


def summed_up(profile: Profile, by: str, result: RunResult, state: RunState, links: Links) -> Piece:
    """Return the summary of a run that succeeded."""
    key = key_of("sweep-run" if "sweep" in result.refs else "run", profile.name)
    waited = f", {result.num_waited} waited for" if result.num_waited else ""
    outcome = f"{result.num_made} of {len(result.rows)} tasks made, {result.num_cached} cached{waited}"
    store, stages = links.store, ("stage", "tasks", "result", "time", "key figures")
    changes = [
        (f"`{change.field}`", value_in_words(change.before), value_in_words(change.after))
        for change in profile.changed
    ]
    unchanged = ("## Overrides", "None: all values are the profile's own.")
    parts = [
        f"# {profile.name}",
        profile.description,
        f"**{outcome}**{_took(result.rows)}, by {by}, in `{store.location}`.",
        *_warnings(store, result.rows),
        *section("## Figures", ("figure", "value"), _figures(store, result)),
        *_shares(store, result),
        *(section("## Overrides", ("field", "profile", "this run"), changes) or unchanged),
        *section("## Made, and why", ("stage", "made", "why", "what differs"), _made(store, state)),
        *section("## Stages", stages, _stages(state)),
        *section("## Results", ("kind", "artifact", "content digest"), _results(result, links)),
        *_lineage(store, result),
    ]
    return Piece("markdown", key, "\n\n".join(filter(None, parts)) + "\n", outcome)


def _took(rows: Sequence[RunRow]) -> str:
    """Return what tasks took that did work: ` in 3 min 20 s`."""
    work = [row for row in rows if row.how != "cached"]
    return f" in {span(wall_seconds(work))}" if work else ""


def _warnings(store: Store, rows: Sequence[RunRow]) -> Sequence[str]:
    warned = [(row.ref, row.metrics["warnings"]) for row in rows if "warnings" in row.metrics]
    lines = [f"- `{store.record(ref).reference}`: {text}" for ref, text in warned]
    return ("## Warnings", "\n".join(lines)) if lines else ()


def _figures(store: Store, result: RunResult) -> Iterator[Sequence[str]]:
    for kind, names in _DECIDE.items():
        metrics = store.record(result.refs[kind]).metrics if kind in result.refs else {}
        for name in names:
            if metrics.get(name, "") != "":
                label, value = labelled(name, metrics[name])
                if kind == "audit" and name not in _OF_NO_TEXT:
                    label += _TEXTS.get(str(metrics["unused_in" if name == "unused_share" else "text"]), "")
                yield label, value


def _shares(store: Store, result: RunResult) -> Sequence[str]:
    """The share of each source in the tokenizer's training text, and in the training tokens."""
    kinds = {kind: words for kind, words in _SHARES.items() if kind in result.refs}
    columns = [
        {
            name.removeprefix("share."): percentage(float(value))
            for name, value in store.record(result.refs[kind]).metrics.items()
            if name.startswith("share.")
        }
        for kind in kinds
    ]
    sources = sorted({source for shares in columns for source in shares})
    rows = [(source, *(shares.get(source, "") for shares in columns)) for source in sources]
    return section("## Shares", ("source", *kinds.values()), rows, right=range(1, len(columns) + 1))


def _made(store: Store, state: RunState) -> Iterator[Sequence[str]]:
    """Yield why each stage that made something could not reuse all."""
    made = {group.name: [row.ref for row in group.rows if row.how == "made"] for group in state.stages}
    looked_at = {name: refs[:_LOOKED_AT] for name, refs in made.items() if refs}
    for name, refs in looked_at.items():
        reasons, details = dict[str, None](), dict[str, None]()
        for ref in refs:
            reason, differing = why_made(store, ref)
            reasons[reason] = None
            details |= dict.fromkeys(differing)
        more = [f"and {len(details) - _DETAILS} more"] if len(details) > _DETAILS else []
        yield name, number(len(made[name])), ", ".join(reasons), ", ".join([*details][:_DETAILS] + more)


def why_made(store: Store, ref: ArtifactRef) -> tuple[str, Sequence[str]]:
    """Return why a run made an artifact, and what differs from the version before, as Markdown.

    Of settings that is both values, of inputs only how many of a role are others.
    """
    published = store.names.published(ref.kind, ref.name)
    labels = list(published)
    own = labels.index(store.label(ref, ref.name)) if ref.fingerprint in published.values() else 0
    if not own:
        return "the first version of that name", ()
    try:
        before = store.read(ref.kind, published[labels[own - 1]])
        differing = payload_differences(before.payload, store.record(ref).payload)
    except StoreError:
        return "the version before cannot be read", ()
    inputs = [each.field.removeprefix("inputs.") for each in differing if each.field.startswith("inputs.")]
    roles = Counter(re.split(r"[.\[]", role, maxsplit=1)[0] for role in inputs)
    settings = [each for each in differing if not each.field.startswith("inputs.")]
    return f"differs from {labels[own - 1]}", [
        *(f"`{each.field.removeprefix('params.')}: {each.a} → {each.b}`" for each in settings),
        *(f"other {role}" if count == 1 else f"{count:,} other {role}" for role, count in roles.items()),
    ]


def _stages(state: RunState) -> Iterator[Sequence[str]]:
    for group in state.stages:
        ended = f"{number(len(group.rows))} of " if len(group.rows) < group.num_tasks else ""
        took = _took(group.rows).removeprefix(" in ")
        yield group.name, f"{ended}{number(group.num_tasks)}", group.outcome, took, group.figures


def _results(result: RunResult, links: Links) -> Iterator[Sequence[str]]:
    for kind, ref in result.refs.items():
        reference = f"{ref.kind}/{ref.name}@{links.store.label(ref, ref.name)}"
        shown = filter(None, (to_key(reference, key_of(ref.kind, ref.name)), links.report(ref)))
        yield kind.replace("_", " "), " · ".join(shown), f"`{ref.content_digest[:16]}`"


def _lineage(store: Store, result: RunResult) -> Sequence[str]:
    end = result.refs.get("packed") or result.refs.get("sweep")
    return ("## Lineage", f"```mermaid\n{lineage(store, end, 'up').to_mermaid()}\n```") if end else ()


def failure_summary(
    name: str, links: Links, error: Exception, state: RunState, task_runs: Mapping[str, UUID]
) -> Piece:
    """Return the summary of a run that failed; `task_runs` has the page of each task by its title."""
    cause = error.__cause__ if isinstance(error, RunError) and error.__cause__ is not None else error
    where = "audit" if isinstance(error, GateError) else getattr(error, "task", None)
    failed = f"`{where}` failed" if where else "It failed before any task began"
    limits = cause.limits if isinstance(cause, GateError) else ()
    others = [(title, _plain(str(each))) for title, each in state.failures if each is not error]
    parts = [
        f"# {name}: failed",
        f"**{failed}**{_took(state.rows)}. What was made is kept in `{links.store.location}`.",
        *section("## What failed", ("", ""), _facts(error, cause, where, links, state, task_runs)),
        *section(
            "## Limits of the gate",
            _LIMITS,
            ([number(row.get(key, "")) for key in _LIMITS] for row in limits),
        ),
        *section("## Also failed", ("task", "why"), others[:_MOST_FAILURES]),
        *section("## Made, and kept", ("stage", "tasks", "result", "time", "key figures"), _stages(state)),
        *section("## Not begun", ("stage",), ((f"`{stage}`",) for stage in dict.fromkeys(state.not_begun))),
        "## What a retry does",
        _retry(cause, where, len(state.rows)),
    ]
    return Piece("markdown", key_of("run", name), "\n\n".join(parts) + "\n", f"failed: {where or 'no task'}")


def _facts(
    error: Exception,
    cause: BaseException,
    where: str | None,
    links: Links,
    state: RunState,
    task_runs: Mapping[str, UUID],
) -> Iterator[tuple[str, str]]:
    problem, fix = _parts(error)
    if where:
        logs = f" · [its logs](/v2/runs/task-run/{task_runs[where]})" if where in task_runs else ""
        yield "stage", f"`{group_of(where).removesuffix('[*]')}`"
        yield "task", f"`{where}`{logs}"
    yield "problem", _plain(problem or type(error).__name__)
    if fix:
        yield "fix", _plain(fix)
    kind = (type(cause).__doc__ or "").split("\n", maxsplit=1)[0].rstrip(".")
    foreseen = isinstance(cause, TaskError | FlowError)
    known = f": {_plain(kind)}" if foreseen else ", which nobody foresaw here: the log has its traceback"
    yield "kind", f"`{type(cause).__name__}`{known}"
    for row in state.rows if isinstance(cause, GateError) else ():
        if row.ref.kind == "audit":
            page = to_key(f"audit/{row.ref.name}", key_of("audit", row.ref.name))
            yield "audit", " · ".join(filter(None, (page, links.report(row.ref))))


def _parts(error: Exception) -> tuple[str, str]:
    """Return what is wrong and what to do; a message with several semicolons is not taken apart."""
    text = str(error)
    if isinstance(error, GateError) and error.verdict in text:
        before, verdict, fix = text.partition(error.verdict)
        return before + verdict, fix.removeprefix("; ")
    problem, _, fix = text.partition("; ")
    return (text, "") if "; " in fix else (problem, fix)


def _retry(cause: BaseException, where: str | None, num_rows: int) -> str:
    found = f"finds the {counted(num_rows, 'artifact')} above" if num_rows else "begins anew"
    then = f", and goes on with `{where}`" if where else ""
    ours = isinstance(cause, TaskError | FlowError)
    again = "With the same profile and the same text it fails again: do what the message says first."
    if isinstance(cause, MachineError):
        again = "It fails again unless the machine has what it lacked."
    if may_pass(cause):
        again = "The fault is of a kind that passes: it is worth a try as it is."
    says = f" {again}" if ours or may_pass(cause) else ""
    return (
        f"*Retry* reads the profile again, {found}{then}; so does any later run with the same values.{says}"
    )


def refusal_summary(profile: str, error: Exception) -> Piece:
    """Return the summary of a run whose profile, or a value given to it, is refused before it begins."""
    problems = "\n".join(f"- {_plain(line)}" for line in str(error).splitlines() if line.strip())
    text = (
        f"# {_plain(profile)}: refused\n\nNothing was begun.\n\n{problems}\n\n## What a retry does\n\n"
        "A retry reads the profile again, so change the file first; values that were given to this run stay "
        "as they are, so for others start a new run (*Copy to new run*).\n"
    )
    return Piece("markdown", key_of("run", Path(profile).stem), text, f"refused: {profile}")


def _plain(text: str) -> str:
    """Return a text as it is, for Markdown."""
    return _MARKS.sub(r"\\\1", text)
