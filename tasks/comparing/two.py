"""The page of two artifacts: what they are, why they differ, and their metrics side by side."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from tokmill.tasks.comparing.causes import Cause, value_text
from tokmill.tasks.comparing.explaining import Explanation
from tokmill.tasks.comparing.page import cause_item
from tokmill.tasks.comparing.runs import change_text
from tokmill.tasks.pages.page import document, gap, note, section, table, write_document
from tokmill.tasks.store import Record

_CONTENTS: Final = {
    "artifacts": "Artifacts",
    "why": "Why they differ",
    "fields": "Recipes",
    "metrics": "Metrics",
}


def write_page_of_two(found: Explanation, path: Path) -> None:
    """Write the page of two artifacts.

    Raises:
        StoreError: the file cannot be written.
    """
    write_document(path, page_of_two(found))


def page_of_two(found: Explanation) -> str:
    """Return the page of two artifacts; the same explanation gives the same bytes."""
    return document(
        f"{found.a.reference} and {found.b.reference} compared",
        _CONTENTS,
        [
            section("artifacts", "Artifacts", _artifacts(found)),
            section("why", "Why they differ", *_reasons(found)),
            section("fields", "Recipes", _fields(found)),
            section("metrics", "Metrics", _metrics(found)),
        ],
    )


def _artifacts(found: Explanation) -> str:
    rows = [_artifact(record) for record in (found.a, found.b)]
    caption = "The artifacts; the second is measured against the first"
    return table(caption, rows, {name: name for name in rows[0]})


def _artifact(record: Record) -> dict[str, str]:
    return {
        "artifact": record.reference,
        "content": record.content_digest[:12],
        "recipe": record.fingerprint[:12],
        "made": record.timings.started[:16].replace("T", " "),
        "by": record.provenance.user,
    }


def _reasons(found: Explanation) -> list[str]:
    if found.same_content:
        idle = _listed(found.without_effect)
        return [gap("The contents are equal."), note("Without effect on the content:") if idle else "", idle]
    return [note("The first causes in the lineage of the two."), _listed(found.causes)]


def _listed(causes: Sequence[Cause]) -> str:
    items = "".join(f"<li>{cause_item(cause)}{_through(cause)}</li>" for cause in causes)
    return f"<ul>{items}</ul>" if items else ""


def _through(cause: Cause) -> str:
    return f"<p>Through {escape(' → '.join([cause.artifact, *cause.through]))}.</p>" if cause.through else ""


def _fields(found: Explanation) -> str:
    rows = [{"": each.field, "a": value_text(each.a), "b": value_text(each.b)} for each in found.fields]
    if not rows:
        return gap("The recipes are equal.")
    return table("Fields that differ; inputs are digests", rows, _columns(found) | {"": "field"})


def _metrics(found: Explanation) -> str:
    rows = [{"": name, "a": a, "b": b, "change": change_text(a, b)} for name, (a, b) in found.metrics.items()]
    if not rows:
        return gap("No metric differs.")
    return table("Metrics that differ", rows, _columns(found) | {"": "metric", "change": "change"})


def _columns(found: Explanation) -> dict[str, str]:
    return {"": "", "a": found.a.reference, "b": found.b.reference}
