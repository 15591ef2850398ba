"""The Markdown summary that every run publishes as an artifact in the Prefect UI.

First the figures by which a run is judged, then what differs from the profile, what was made and why, and
what was reused; then stages, results, the lineage and the parameters. The lineage is a Mermaid graph, which
the newer UI (under `/v2`) draws. All shards of a stage are one node, since there may be hundreds. Every
figure comes from a record.
"""

from collections.abc import Iterable, Mapping, Sequence

from tokmill.flows.figures import labelled, percentage, span
from tokmill.flows.prefect.artifact_page import Piece
from tokmill.flows.prefect.links import Links, key_of, known_before, section, to_key, why_made
from tokmill.flows.profile import Profile
from tokmill.flows.profile.fields import value_in_words
from tokmill.flows.results import RunResult, RunRow, wall_seconds
from tokmill.flows.run.events import RunState
from tokmill.flows.run.progress import Group
from tokmill.tasks.core.markdown import number
from tokmill.tasks.core.stage import Scalar
from tokmill.tasks.store import Store, lineage

_DECIDE: Mapping[str, Sequence[str]] = {
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
_TEXTS = {
    "held_out": " (held-out documents)",
    "corpus": " (a sample of the corpus)",
    "training": " (training text)",
    "text": " (text that was measured)",
}
_SHARES: Mapping[str, str] = {"balance": "training text", "mixture": "training tokens"}
_DETAILS, _LOOKED_AT = 4, 20
_SHARE = "share."


def run_summary(
    profile: Profile, store: Store, by: str, result: RunResult, state: RunState, links: Links
) -> str:
    """Return the summary of a run that succeeded."""
    parts = [
        f"# {profile.name}",
        profile.description,
        _outcome(store, by, result),
        *_warnings(store, result.rows),
        *section("## Figures", ("figure", "value"), _figures(store, result)),
        *_shares(store, result),
        *_overrides(profile),
        *section(
            "## Made, and why",
            ("stage", "made", "why", "what differs"),
            _made(store, result.run_id, state.stages),
        ),
        *section("## Stages", ("stage", "tasks", "result", "time", "key figures"), _stages(state.stages)),
        *section("## Results", ("kind", "artifact", "content digest"), _results(store, result, links)),
        *_lineage(store, result),
        *section("## Parameters", ("parameter", "value"), _parameters(profile)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def outcome_line(result: RunResult) -> str:
    """Return what became of the tasks, in one line: `3 of 26 tasks made, 23 cached`."""
    waited = f", {result.num_waited} waited for" if result.num_waited else ""
    return f"{result.num_made} of {len(result.rows)} tasks made, {result.num_cached} cached{waited}"


def _outcome(store: Store, by: str, result: RunResult) -> str:
    work = [row for row in result.rows if row.how != "cached"]
    took = f" in {span(wall_seconds(work))}" if work else ""
    return f"**{outcome_line(result)}**{took}, by {by}, in `{store.location}`."


def _warnings(store: Store, rows: Sequence[RunRow]) -> Sequence[str]:
    found = [(row.ref, row.metrics["warnings"]) for row in rows if "warnings" in row.metrics]
    lines = [f"- `{store.record(ref).reference}`: {text}" for ref, text in found]
    return ("## Warnings", "\n".join(lines)) if lines else ()


def _figures(store: Store, result: RunResult) -> Iterable[Sequence[str]]:
    for kind, names in _DECIDE.items():
        if kind in result.refs:
            metrics = store.record(result.refs[kind]).metrics
            for name in names:
                if metrics.get(name, "") != "":
                    label, value = labelled(name, metrics[name])
                    yield label + _measured_on(kind, name, metrics), value


def _measured_on(kind: str, name: str, metrics: Mapping[str, Scalar]) -> str:
    """The text that a figure of the audit was measured on, as a part of its label."""
    if kind != "audit" or name in {"gate", "max_premium"}:
        return ""
    text = metrics["unused_in"] if name == "unused_share" else metrics["text"]
    return _TEXTS.get(str(text), "")


def _shares(store: Store, result: RunResult) -> Sequence[str]:
    """The share of each source in the tokenizer's training text, and in the training tokens."""
    columns = {
        words: {
            name.removeprefix(_SHARE): percentage(float(value))
            for name, value in store.record(result.refs[kind]).metrics.items()
            if name.startswith(_SHARE)
        }
        for kind, words in _SHARES.items()
        if kind in result.refs
    }
    sources = sorted({source for shares in columns.values() for source in shares})
    rows = [(source, *(shares.get(source, "") for shares in columns.values())) for source in sources]
    return section("## Shares", ("source", *columns), rows, right=range(1, len(columns) + 1))


def _overrides(profile: Profile) -> Sequence[str]:
    rows = [
        (f"`{change.field}`", value_in_words(change.before), value_in_words(change.after))
        for change in profile.changed
    ]
    found = section("## Overrides", ("field", "profile", "this run"), rows)
    return found or ("## Overrides", "None: all values are the profile's own.")


def _made(store: Store, run_id: str, stages: Sequence[Group]) -> Iterable[Sequence[str]]:
    """Yield why each stage that made something could not reuse all."""
    made = {group.name: [row for row in group.rows if row.how == "made"] for group in stages}
    looked_at = {name: rows[:_LOOKED_AT] for name, rows in made.items() if rows}
    known = known_before(store, run_id, [row.ref for rows in looked_at.values() for row in rows])
    for name, rows in looked_at.items():
        reasons = [why_made(store, row.ref, known=row.ref.fingerprint in known) for row in rows]
        texts = dict.fromkeys(reason.text for reason in reasons)
        details = list(dict.fromkeys(detail for reason in reasons for detail in reason.details))
        more = [f"and {len(details) - _DETAILS} more"] if len(details) > _DETAILS else []
        what = ", ".join([*details[:_DETAILS], *more])
        yield name, number(len(made[name])), ", ".join(texts), what


def _stages(stages: Sequence[Group]) -> Iterable[Sequence[str]]:
    for group in stages:
        worked = [row for row in group.rows if row.how != "cached"]
        took = span(wall_seconds(worked)) if worked else ""
        yield group.name, number(group.num_tasks), group.outcome, took, group.figures


def _results(store: Store, result: RunResult, links: Links) -> Iterable[Sequence[str]]:
    for kind, ref in result.refs.items():
        reference = f"{ref.kind}/{ref.name}@{store.label(ref, ref.name)}"
        report = links.report(ref)
        beside = f" · {report}" if report else ""
        yield (
            kind.replace("_", " "),
            to_key(reference, key_of(ref.kind, ref.name)) + beside,
            f"`{ref.content_digest[:16]}`",
        )


def _lineage(store: Store, result: RunResult) -> Sequence[str]:
    end = result.refs.get("packed") or result.refs.get("sweep")
    return ("## Lineage", f"```mermaid\n{lineage(store, end, 'up').to_mermaid()}\n```") if end else ()


def _parameters(profile: Profile) -> Iterable[Sequence[str]]:
    """Yield the values that are no defaults, other than those of the machine."""
    given = profile.model_dump(
        mode="json", exclude_defaults=True, exclude={"name", "description", "execution"}
    )
    for path, value in _leaves(given):
        yield f"`{path}`", value_in_words(value)


def _leaves(value: Mapping[str, object], above: str = "") -> Iterable[tuple[str, object]]:
    for key, item in value.items():
        path = f"{above}.{key}" if above else key
        if isinstance(item, Mapping):
            yield from _leaves(item, path)
        else:
            yield path, item


def summed_up(
    profile: Profile, store: Store, by: str, result: RunResult, state: RunState, links: Links
) -> list[Piece]:
    """Return the artifact of a run's page that describes the whole run."""
    text = run_summary(profile, store, by, result, state, links)
    key = key_of("sweep-run" if "sweep" in result.refs else "run", profile.name)
    return [Piece("markdown", key, text, outcome_line(result))]
