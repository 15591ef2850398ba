"""How the files of two corpora differ: files gained, lost, renamed and changed, and their documents.

A corpus lists its files with digests and numbers of documents. Which documents of a changed file came, went
or changed follows from their text, as far as it can still be had (`documents`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from tokmill.tasks.comparing.causes import Cause, is_whole
from tokmill.tasks.comparing.documents import Documents, changed_documents, moved_documents
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.store import Record, Store

How: TypeAlias = Literal["gained", "lost", "renamed", "changed"]
_COLUMNS: Final = ["source", "name", "size_bytes", "digest", "num_documents", "num_bytes", "num_quarantined"]
_SHOWN: Final = 20


@dataclass(frozen=True)
class FileChange:
    """One file that differs.

    Attributes:
        source: its source.
        name: relative to the source's root; of a renamed one, the new name.
        how: what became of it.
        a, b: its row in each corpus; None where it is not there.
        documents: what became of its documents; None if their text cannot be had any more.
    """

    source: str
    name: str
    how: How
    a: Mapping[str, Any] | None
    b: Mapping[str, Any] | None
    documents: Documents | None = None

    @property
    def text(self) -> str:
        """The change in words: `part-1.jsonl: 40 → 52 documents (12 gained)`."""
        if self.a is None or self.b is None:
            row = self.a or self.b or {}
            return f"{self.name}: {self.how}, with {_counted(row.get('num_documents', 0))}"
        if self.how == "renamed":
            return f"{self.a['name']} → {self.name}: the same content"
        before, after = self.a["num_documents"], self.b["num_documents"]
        numbers = f"{before:,} → {_counted(after)}" if before != after else _counted(after)
        sizes = f"{self.a['size_bytes']:,} → {self.b['size_bytes']:,} bytes"
        known = self.documents.text if self.documents is not None else _UNKNOWN
        return f"{self.name}: {numbers} ({known}), {sizes}"

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON values."""
        return {
            "name": self.name,
            "how": self.how,
            "a": None if self.a is None else dict(self.a),
            "b": None if self.b is None else dict(self.b),
            "documents": None if self.documents is None else self.documents.to_json(),
        }


_UNKNOWN: Final = "which ones is not known: the text of one version is neither where it was nor encoded"


def causes_of_sources(store: Store, a: Record, b: Record) -> Iterator[Cause]:
    """Yield one cause per source whose files differ between two corpora."""
    before, after = _files(store, a), _files(store, b)
    if before is None or after is None:
        yield from _by_origin(a, b)
        return
    changes = list(_changes(before, after))
    documents = changed_documents(
        store, (a, b), [(one.source, one.name) for one in changes if one.how == "changed"]
    )
    for source in sorted({change.source for change in changes}):
        own = [_with_documents(change, documents) for change in changes if change.source == source]
        moved = _moved(store, (a, b), own)
        yield _cause(f"{b.kind}/{b.name}", source, own, before, after, moved, changes)


def _moved(store: Store, corpora: tuple[Record, Record], own: Sequence[FileChange]) -> Documents | None:
    """Return what became of the documents of a source's lost files, if it gained others."""
    lost, gained = (
        [(each.source, each.name) for each in own if each.how == how] for how in ("lost", "gained")
    )
    return moved_documents(store, corpora, lost, gained) if lost and gained else None


def _cause(
    where: str,
    source: str,
    changes: Sequence[FileChange],
    before: Mapping[tuple[str, str], Any],
    after: Mapping[tuple[str, str], Any],
    moved: Documents | None,
    every: Sequence[FileChange],
) -> Cause:
    numbers = [
        sum(row["num_documents"] for (name, _), row in files.items() if name == source)
        for files in (before, after)
    ]
    hows = [
        f"{number} {how}"
        for how in ("changed", "gained", "lost", "renamed")
        if (number := _num(changes, how))
    ]
    known = _summed(changes, moved)
    only_names = all(change.how == "renamed" for change in changes)
    said = "" if known is None else ": the same documents" if only_names else f": {known.text}"
    text = f"source {source}: {numbers[0]:,} → {_counted(numbers[1])}{said}; files: {', '.join(hows)}"
    details = [f"{change.text}{_elsewhere(change, every)}" for change in changes[:_SHOWN]]
    if len(changes) > _SHOWN:
        details.append(f"… and {len(changes) - _SHOWN:,} more files")
    data = {
        "files": [change.to_json() for change in changes],
        "documents": None if known is None else known.to_json(),
    }
    return Cause("source", where, source, numbers[0], numbers[1], text, details, data)


def _elsewhere(change: FileChange, every: Sequence[FileChange]) -> str:
    """Tell from which source a gained file came, or to which a lost one went, by their content."""
    row = change.a or change.b or {}
    other = {"gained": "lost", "lost": "gained"}.get(change.how)
    for each in every:
        its = each.a or each.b or {}
        if each.how == other and each.source != change.source and its.get("digest") == row.get("digest"):
            verb = "was" if change.how == "gained" else "is now"
            return f": it {verb} {each.name} of the source {each.source}"
    return ""


def _summed(changes: Sequence[FileChange], moved: Documents | None) -> Documents | None:
    """Return what became of a source's documents in all its files; None if that is not known of one."""
    total = moved or Documents()
    for change in changes:
        if moved is not None and change.how in ("gained", "lost"):
            continue
        if change.how == "gained":
            total += Documents(gained=change.b["num_documents"] if change.b else 0)
        elif change.how == "lost":
            total += Documents(lost=change.a["num_documents"] if change.a else 0)
        elif change.how == "changed":
            if change.documents is None:
                return None
            total += change.documents
    return total


def _changes(
    before: Mapping[tuple[str, str], Any], after: Mapping[tuple[str, str], Any]
) -> Iterator[FileChange]:
    """Yield the files that differ; one that is gone and one of equal content that came are one, renamed."""
    gone = {key: row for key, row in before.items() if key not in after}
    came = {key: row for key, row in after.items() if key not in before}
    for key, row in list(came.items()):
        same = next(
            (old for old, was in gone.items() if old[0] == key[0] and was["digest"] == row["digest"]), None
        )
        if same is not None:
            yield FileChange(*key, "renamed", gone.pop(same), came.pop(key))
    for key, row in after.items():
        if key in before and before[key]["digest"] != row["digest"]:
            yield FileChange(*key, "changed", before[key], row)
    for key, row in came.items():
        yield FileChange(*key, "gained", None, row)
    for key, row in gone.items():
        yield FileChange(*key, "lost", row, None)


def _with_documents(change: FileChange, known: Mapping[tuple[str, str], Documents]) -> FileChange:
    found = known.get((change.source, change.name))
    if found is None or change.how != "changed":
        return change
    return FileChange(change.source, change.name, change.how, change.a, change.b, found)


def _files(store: Store, record: Record) -> dict[tuple[str, str], Any] | None:
    """Return the files of a corpus by source and name; None if it was removed."""
    if not is_whole(store, record):
        return None
    try:
        rows = Corpus.open(store.place(record.ref)).table("files").select(_COLUMNS).to_pylist()
    except (TaskError, OSError):  # damaged: what the record has is told
        return None
    return {(row["source"], row["name"]): row for row in rows}


def _by_origin(a: Record, b: Record) -> Iterator[Cause]:
    """Tell two corpora apart by their records alone, if one was removed: by the paths of their files."""
    before, after = ({entry.origin or entry.digest: entry.digest for entry in each.inputs} for each in (a, b))
    changed = sorted(path for path in before if path in after and before[path] != after[path])
    gained, lost = sorted({*after} - {*before}), sorted({*before} - {*after})
    lines = [
        *(f"{path}: changed" for path in changed),
        *(f"{path}: gained" for path in gained),
        *(f"{path}: lost" for path in lost),
    ]
    if lines:
        text = (
            f"files: {len(changed)} changed, {len(gained)} gained, {len(lost)} lost (one corpus was removed)"
        )
        yield Cause("source", f"{b.kind}/{b.name}", "files", len(before), len(after), text, lines[:_SHOWN])


def _num(changes: Sequence[FileChange], how: str) -> int:
    return sum(change.how == how for change in changes)


def _counted(number: int) -> str:
    return f"{number:,} document{'' if number == 1 else 's'}"
