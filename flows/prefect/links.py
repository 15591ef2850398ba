"""What the texts in Prefect's pages share: sections, and links to flow runs, artifacts and reports.

Paths begin at the server's root, so that they work under every name of it, from both of Prefect's user
interfaces; they open the newer one. A run is linked only if this server knows it: an artifact may have been
made on another server, or without any.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.markdown import table
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Difference, Store, payload_differences

_RUN, _TASK_RUN, _KEY = "/v2/runs/flow-run", "/v2/runs/task-run", "/v2/artifacts/key"
_EMPTY = 2  # lines of a table without rows
_REPORTED = {"audit", "sweep"}
_KNOWN = """
    SELECT DISTINCT fingerprint FROM run_artifacts
    WHERE run_id <> $run_id AND fingerprint IN (SELECT unnest($fingerprints::VARCHAR[]))
"""


def key_of(what: str, name: str) -> str:
    """Return a key that Prefect accepts (lower-case letters, digits, dashes): `audit-my-profile`."""
    return re.sub("[^a-z0-9]+", "-", f"{what}-{name}".lower()).strip("-")


def section(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> Sequence[str]:
    """Return a heading and a table, whose columns in `right` have numbers; nothing without rows."""
    lines = table(head, rows, left=[column for column in range(len(head)) if column not in right])
    return (title, "\n".join(lines)) if len(lines) > _EMPTY else ()


def to_key(text: str, key: str) -> str:
    """Return a link to the newest artifact of a key."""
    return f"[{text}]({_KEY}/{key})"


def to_task_run(text: str, task_run: UUID) -> str:
    """Return a link to the page of a task run."""
    return f"[{text}]({_TASK_RUN}/{task_run})"


@dataclass
class Links:
    """What can be linked.

    Attributes:
        store: the store, as a folder or URL.
        reports: URL below which reports are served; None if this server has none.
        runs: id → name of the flow runs that this server knows.
        asked: ids of flow runs that it was asked for.
    """

    store: str
    reports: str | None = None
    runs: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def unknown(self, ids: Iterable[str | None]) -> set[str]:
        """Return the ids of flow runs that the server was not asked for yet."""
        return {run_id for run_id in ids if run_id is not None} - self.asked

    def learn(self, asked: Iterable[str], names: Mapping[str, str]) -> None:
        """Note which flow runs the server knows of those that it was asked for, and their names."""
        self.asked |= set(asked)
        self.runs |= names

    def run(self, run_id: str | None) -> str:
        """Return a link to a flow run, by its name; nothing if this server does not know it."""
        return f"[{_plain(self.runs[run_id])}]({_RUN}/{run_id})" if run_id in self.runs else ""

    def report(self, ref: ArtifactRef) -> str:
        """Return a link to the report of an artifact; nothing if it has none, or no server makes it."""
        if self.reports is None or ref.kind not in _REPORTED:
            return ""
        return f"[Report]({self.reports}/{ref.fingerprint})"

    def command(self, reference: str) -> str:
        """Return the command that shows an artifact in a terminal, in whatever folder."""
        return f"tokmill show {reference} --store {shlex.quote(self.store)}"


def _plain(text: str) -> str:
    """Return a text that ends no link and no cell of a table."""
    return text.replace("[", "(").replace("]", ")").replace("|", "/")


_PARAMS, _INPUTS = "params.", "inputs."


class Reason(NamedTuple):
    """Why an artifact was made, and what differs from the version before, as Markdown."""

    text: str
    details: Sequence[str] = ()


def known_before(store: Store, run_id: str, refs: Iterable[ArtifactRef]) -> set[str]:
    """Return the fingerprints of the artifacts that other runs had, too, as of this run's start."""
    fingerprints = [ref.fingerprint for ref in refs]
    if not fingerprints:
        return set()
    rows = store.catalog.query_snapshot(_KNOWN, {"run_id": run_id, "fingerprints": fingerprints})
    return {row["fingerprint"] for row in rows}


def why_made(store: Store, ref: ArtifactRef, *, known: bool) -> Reason:
    """Return why a run made an artifact."""
    if known:
        return Reason("its artifact was gone or damaged")
    published = store.names.published(ref.kind, ref.name)
    labels = list(published)
    own = labels.index(store.label(ref, ref.name)) if ref.fingerprint in published.values() else 0
    if not own:
        return Reason("no artifact of that name before")
    try:
        before = store.read(ref.kind, published[labels[own - 1]])
        after = store.record(ref)
    except StoreError:
        return Reason("the version before cannot be read")
    differing = payload_differences(before.payload, after.payload)
    return Reason(f"differs from {labels[own - 1]}", list(_in_words(differing)))


def _in_words(differing: Sequence[Difference]) -> Iterator[str]:
    """Yield settings with both values, then the inputs that are others, by role; digests say no more."""
    inputs = [each.field.removeprefix(_INPUTS) for each in differing if each.field.startswith(_INPUTS)]
    for each in differing:
        if not each.field.startswith(_INPUTS):
            yield f"`{each.field.removeprefix(_PARAMS)}: {each.a} → {each.b}`"
    roles = Counter(re.split(r"[.\[]", role, maxsplit=1)[0] for role in inputs)
    for role, number in roles.items():
        yield f"other {role}" if number == 1 else f"{number:,} other {role}"
