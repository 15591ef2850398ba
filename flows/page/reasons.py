"""Why a task made its artifact instead of reusing one: the fields that differ from the version before.

It is found after the run, from the records: the version before is the newest of the same kind and name that
is still in the store. An artifact that an earlier run made or used already was gone or damaged.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Difference, Store, payload_differences

_PARAMS, _INPUTS = "params.", "inputs."
_KNOWN = """
    SELECT DISTINCT fingerprint FROM run_artifacts
    WHERE run_id <> $run_id AND fingerprint IN (SELECT unnest($fingerprints::VARCHAR[]))
"""


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
    """Return why a run made an artifact.

    Args:
        store: the store.
        ref: the artifact.
        known: whether an earlier run had it already.
    """
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
