"""Compares artifacts that were made again with their records, and says why one differs.

An artifact differs if its content digest does. The reasons are looked for only where the difference begins:
at artifacts of which no input differs. What else was different there is in the records, and named: the
version or parameters of the stage, packages, Python, the platform, Unicode tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tokmill.flows.reproduce.known import inputs_of
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.store.digest import FileEntry
from tokmill.tasks.store.recipe import payload_differences
from tokmill.tasks.store.record import Record

Verdict: TypeAlias = Literal["equal", "differs", "not made"]

_WITH_UNICODE = ("regex", "unicodedata2")
_FILES_SHOWN = 5


@dataclass(frozen=True)
class Compared:
    """One artifact that was to be made again.

    Attributes:
        record: the original's.
        verdict: whether the content is equal.
        again: the digest of the new content; empty if it was not made.
        files: those that differ, or are on one side only.
        is_first: whether it differs though none of its inputs does.
        reasons: why it may differ, if it is where a difference begins.
    """

    record: Record
    verdict: Verdict
    again: str = ""
    files: Sequence[str] = ()
    is_first: bool = False
    reasons: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "artifact": self.record.reference,
            "fingerprint": self.record.fingerprint,
            "verdict": self.verdict,
            "content_digest": self.record.content_digest,
            "again": self.again,
            "files": list(self.files),
            "reasons": list(self.reasons),
        }


def compare(records: Sequence[Record], store: Store, made: Mapping[str, ArtifactRef]) -> list[Compared]:
    """Compare artifacts with what was made of their records.

    Args:
        records: inputs first.
        store: the new store.
        made: the new artifacts by the fingerprints in the records.
    """
    compared: dict[str, Compared] = {}
    for record in records:
        if record.fingerprint not in made:
            compared[record.fingerprint] = Compared(record, "not made")
            continue
        new = store.record(made[record.fingerprint])
        before = [compared[each] for each in inputs_of(record) if each in compared]
        compared[record.fingerprint] = _compared(record, new, before)
    return list(compared.values())


def _compared(record: Record, new: Record, before: Sequence[Compared]) -> Compared:
    if record.content_digest == new.content_digest:
        return Compared(record, "equal", new.content_digest)
    first = all(each.verdict == "equal" for each in before)
    reasons = list(reasons_of(record, new)) if first else []
    return Compared(
        record, "differs", new.content_digest, _differing(record.files, new.files), first, reasons
    )


def _differing(before: Sequence[FileEntry], after: Sequence[FileEntry]) -> list[str]:
    ours, theirs = ({entry.path: entry.content for entry in files} for files in (before, after))
    return sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))


def reasons_of(record: Record, new: Record) -> Iterator[str]:
    """Yield what was different when an artifact was made, in sentences; one says so if nothing was."""
    found = [*_recipe(record, new), *_unicode(record, new), *_surroundings(record, new)]
    yield from found
    if not found:
        yield (
            "nothing that records hold was different: the stage depends on something else, which is a fault "
            "of it, or the original was changed after it was made (`tokmill verify`)"
        )


def _recipe(record: Record, new: Record) -> Iterator[str]:
    stage = record.payload["stage"]
    for change in payload_differences(record.payload, new.payload):
        if change.field == "version":
            yield f"version of the stage {stage}: {change.a} then, {change.b} now"
        elif not change.field.startswith("inputs"):
            yield f"{change.field} of the stage {stage}: {change.a} then, {change.b} now"


def _unicode(record: Record, new: Record) -> Iterator[str]:
    before, after = (str(each.metrics.get("unicode_tables", "")) for each in (record, new))
    if before != after:
        yield f"Unicode tables: {before or 'unknown'} then, {after or 'unknown'} now"


def _surroundings(record: Record, new: Record) -> Iterator[str]:
    before, after = record.provenance, new.provenance
    for name in sorted(before.packages.keys() | after.packages.keys()):
        was, now = before.packages.get(name), after.packages.get(name)
        if was is not None and now is not None and was != now:
            tables = "; it has Unicode tables" if name in _WITH_UNICODE else ""
            yield f"package {name}: {was} then, {now} now{tables}"
    if before.git_commit and after.git_commit and before.git_commit != after.git_commit:
        yield f"code: commit {before.git_commit[:12]} then, {after.git_commit[:12]} now"
    for what in ("python", "platform"):
        was, now = getattr(before, what), getattr(after, what)
        if was != now:
            yield f"{what}: {was} then, {now} now"


def shown_files(files: Sequence[str]) -> str:
    """Return the first of some files, for a line."""
    more = f" and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
    return ", ".join(files[:_FILES_SHOWN]) + more
