"""The Markdown summary that every run publishes as an artifact in the Prefect UI.

The lineage is a Mermaid graph, which the newer UI (under `/v2`) draws. All shards of a stage are one node,
since there may be hundreds. Every figure comes from a record.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tokmill.flows.profile import Profile
from tokmill.flows.run.progress import group_of
from tokmill.flows.run.results import RunResult, RunRow
from tokmill.tasks.core.markdown import table
from tokmill.tasks.core.stage import How, Scalar
from tokmill.tasks.store import Store, lineage


def run_summary(profile: Profile, store: Store, result: RunResult) -> str:
    """Return the summary of a run that succeeded: stages, results, and the packed artifact's lineage."""
    waited = f", **{result.num_waited}** waited for" if result.num_waited else ""
    parts = [
        f"# {profile.name}",
        profile.description,
        f"**{result.num_made}** of {len(result.rows)} tasks made, **{result.num_cached}** cached{waited}, "
        f"in `{store.root}`",
        *_warnings(store, result.rows),
        "## Stages",
        _table(("stage", "tasks", "made", "artifact", "key figures"), _stage_rows(store, result.rows)),
        "## Results",
        _table(("kind", "artifact", "content digest"), _result_rows(store, result)),
        "## Lineage",
        f"```mermaid\n{lineage(store, result.refs['packed'], 'up').to_mermaid()}\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _warnings(store: Store, rows: Sequence[RunRow]) -> Iterable[str]:
    """Yield a section with the artifacts' warnings, if there are any."""
    found = [
        (store.record(row.ref).reference, row.metrics["warnings"])
        for row in rows
        if "warnings" in row.metrics
    ]
    if found:
        yield "## Warnings"
        yield "\n".join(f"- `{reference}`: {text}" for reference, text in found)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(table(head, rows, left=range(len(head))))


def _stage_rows(store: Store, rows: Sequence[RunRow]) -> Iterable[Sequence[str]]:
    groups: dict[str, list[RunRow]] = {}
    for row in rows:
        groups.setdefault(group_of(row.task), []).append(row)
    for group, members in groups.items():
        made = Counter(row.how for row in members)
        alone = members[0] if len(members) == 1 else None
        reference = f"`{store.record(alone.ref).reference}`" if alone else ""
        figures = _figures(alone.metrics) if alone else ""
        yield group, str(len(members)), _made(made), reference, figures


def _made(numbers: Mapping[How, int]) -> str:
    """The number of tasks that made their artifact, or waited for another run; `Cached` if there are none."""
    made, waited = numbers.get("made", 0), numbers.get("waited", 0)
    if waited:
        return f"{made}, and {waited} waited for" if made else f"{waited} waited for"
    return str(made) if made else "Cached"


def _figures(metrics: Mapping[str, Scalar], most: int = 4) -> str:
    return ", ".join(
        f"{name.removeprefix('num_')} {_text(value)}" for name, value in list(metrics.items())[:most]
    )


def _text(value: Scalar) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _result_rows(store: Store, result: RunResult) -> Iterable[Sequence[str]]:
    for kind, ref in result.refs.items():
        yield kind, f"`{store.record(ref).reference}`", f"`{ref.content_digest[:16]}`"
