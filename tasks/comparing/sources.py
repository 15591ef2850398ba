"""How the files of two corpora differ: files gained, lost, renamed and changed, and their documents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple, TypeAlias

from tokmill.tasks.comparing.causes import Cause, is_whole
from tokmill.tasks.comparing.documents import Documents, Hashes, compare, documents_of
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.store import Record, Store

_COLUMNS: Final = ["source", "name", "size_bytes", "digest", "num_documents", "num_bytes", "num_quarantined"]
_SHOWN: Final = 20
_UNKNOWN: Final = "which ones is not known: the text of one version is neither where it was nor encoded"
Files: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""The files of a corpus: source and name → row of its table of files."""


class FileChange(NamedTuple):
    """One file that differs."""

    source: str  # its source
    name: str  # relative to the source's root; of a renamed one, the new name
    how: str  # `gained`, `lost`, `renamed` or `changed`
    a: Mapping[str, Any] | None  # its row in the first corpus; None if it was gained
    b: Mapping[str, Any] | None  # its row in the second one; None if it was lost

    @property
    def row(self) -> Mapping[str, Any]:
        """The row where it is."""
        return self.b or self.a or {}

    def text(self, documents: Documents | None) -> str:
        """The change in words: `part-1.jsonl: 40 → 52 documents (12 gained)`."""
        if self.a is None or self.b is None:
            return f"{self.name}: {self.how}, with {_counted(self.row['num_documents'])}"
        if self.how == "renamed":
            return f"{self.a['name']} → {self.name}: the same content"
        before, after = self.a["num_documents"], self.b["num_documents"]
        numbers = f"{before:,} → {_counted(after)}" if before != after else _counted(after)
        sizes = f"{self.a['size_bytes']:,} → {self.b['size_bytes']:,} bytes"
        return f"{self.name}: {numbers} ({documents.text if documents else _UNKNOWN}), {sizes}"


def causes_of_sources(store: Store, a: Record, b: Record) -> Iterator[Cause]:
    """Yield one cause per source whose files differ between two corpora."""
    before, after = _files(store, a), _files(store, b)
    if before is None or after is None:
        yield from _by_origin(a, b)
        return
    changes = list(_changes(before, after))
    for source in sorted({change.source for change in changes}):
        own = [change for change in changes if change.source == source]
        hashes = _hashes(store, (a, b), source, own)
        known = {change.name: _of_file(change, hashes) for change in own}
        numbers = [
            sum(row["num_documents"] for (name, _), row in files.items() if name == source)
            for files in (before, after)
        ]
        details = [f"{one.text(known[one.name])}{_elsewhere(one, changes)}" for one in own[:_SHOWN]]
        if len(own) > _SHOWN:
            details.append(f"… and {len(own) - _SHOWN:,} more files")
        total = _total(own, hashes)
        text = f"source {source}: {numbers[0]:,} → {_counted(numbers[1])}{_said(own, total)}"
        rows = [
            {name: value for name, value in each._asdict().items() if name != "source"}
            | {"documents": _json(known[each.name])}
            for each in own
        ]
        data = {"files": rows, "documents": _json(total)}
        where = f"{b.kind}/{b.name}"
        yield Cause("source", where, source, numbers[0], numbers[1], text, details, data)


def _json(documents: Documents | None) -> dict[str, int] | None:
    return None if documents is None else asdict(documents)


def _said(changes: Sequence[FileChange], documents: Documents | None) -> str:
    hows = [change.how for change in changes]
    same = all(how == "renamed" for how in hows)
    said = "" if documents is None else ": the same documents" if same else f": {documents.text}"
    numbers = [(hows.count(how), how) for how in ("changed", "gained", "lost", "renamed")]
    return f"{said}; files: {', '.join(f'{number} {how}' for number, how in numbers if number)}"


def _hashes(
    store: Store, corpora: tuple[Record, Record], source: str, changes: Sequence[FileChange]
) -> tuple[Hashes, Hashes] | None:
    """Read the documents of files that changed, or that were lost and gained: split, joined or rewritten.

    None if none has to be read, or if they cannot be had any more.
    """
    hows = {change.how for change in changes}
    if "changed" not in hows and not hows >= {"lost", "gained"}:
        return None
    sides = zip(corpora, ("lost", "gained"), strict=True)
    before, after = (
        documents_of(store, corpus, source, {one.name for one in changes if one.how in ("changed", how)})
        for corpus, how in sides
    )
    return None if before is None or after is None else (before, after)


def _of_file(change: FileChange, hashes: tuple[Hashes, Hashes] | None) -> Documents | None:
    if hashes is None or change.how != "changed":
        return None
    return compare(*({at: digest for at, digest in one.items() if at[0] == change.name} for one in hashes))


def _total(changes: Sequence[FileChange], hashes: tuple[Hashes, Hashes] | None) -> Documents | None:
    """What became of a source's documents in all its files; None if that is not known of one."""
    if hashes is not None:
        return compare(*hashes)
    if any(change.how == "changed" for change in changes):
        return None
    gained, lost = (
        sum(each.row["num_documents"] for each in changes if each.how == how) for how in ("gained", "lost")
    )
    return Documents(gained, lost)


def _elsewhere(change: FileChange, every: Sequence[FileChange]) -> str:
    """Tell from which source a gained file came, or to which a lost one went, by their content."""
    other = {"gained": "lost", "lost": "gained"}.get(change.how)
    for each in every:
        if each.how == other and each.source != change.source and each.row["digest"] == change.row["digest"]:
            verb = "was" if change.how == "gained" else "is now"
            return f": it {verb} {each.name} of the source {each.source}"
    return ""


def _changes(before: Files, after: Files) -> Iterator[FileChange]:
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
    yield from (FileChange(*key, "gained", None, row) for key, row in came.items())
    yield from (FileChange(*key, "lost", row, None) for key, row in gone.items())


def _files(store: Store, record: Record) -> Files | None:
    """Return the files of a corpus; None if it was removed or is damaged."""
    if not is_whole(store, record):
        return None
    try:
        rows = Corpus.open(store.place(record.ref)).table("files").select(_COLUMNS).to_pylist()
    except (TaskError, OSError):
        return None
    return {(row["source"], row["name"]): row for row in rows}


def _by_origin(a: Record, b: Record) -> Iterator[Cause]:
    """Tell two corpora apart by their records alone, if one was removed: by the paths of their files."""
    before, after = ({entry.origin or entry.digest: entry.digest for entry in each.inputs} for each in (a, b))
    changed = {path for path in before.keys() & after.keys() if before[path] != after[path]}
    hows = {"changed": changed, "gained": after.keys() - before.keys(), "lost": before.keys() - after.keys()}
    paths = {how: sorted(its) for how, its in hows.items()}
    if lines := [f"{path}: {how}" for how, its in paths.items() for path in its]:
        numbers = ", ".join(f"{len(its)} {how}" for how, its in paths.items())
        text = f"files: {numbers} (one corpus was removed)"
        yield Cause("source", f"{b.kind}/{b.name}", "files", len(before), len(after), text, lines[:_SHOWN])


def _counted(number: int) -> str:
    return f"{number:,} document{'' if number == 1 else 's'}"
