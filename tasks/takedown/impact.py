"""Find every artifact that a file of text, or one document of it, went into, by the records and pieces.

A file is named by its path, a glob, a URL or its content digest; it need not be there any more. A row counts
from 0. From the corpora that list such a file, and the shards that have its rows, the records lead to all
that was made of them:

    contains    its text or tokens: corpora (their account of it), encoded shards, mixtures, packings, exports
    made from   what was counted, learned or measured with it, and what was made of that in turn

The way leads on through artifacts that were removed, and through equal bytes, as in lineage; and from a
corpus to its parts, whose shards have digests of their own.

Of one row more is read: whether it was quarantined, on which side of a holdout it is, and which encoded
shards kept it. Whether a packing has a piece of it, and in how many sequences, is read from the pieces that
it lists, as far as they are of the shards that it was made from. One that cannot be read stays in the answer
as unknown, with the reason; and so does what was made from tokens that are lost, since nobody knows of which
text they were.
"""

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokmill.tasks.core.errors import StoreError, TaskError, TracingError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.pieces import PieceRows
from tokmill.tasks.formats.text.source_files import origin_digest
from tokmill.tasks.store.catalog import Ask
from tokmill.tasks.store.digest import digest_file
from tokmill.tasks.store.store import Store
from tokmill.tasks.store.tables import content_id
from tokmill.tasks.takedown.impact_queries import BY_CONTENT, BY_PLACE, DOWN, LOST, OF_SHARDS, PARTS
from tokmill.tasks.tracing.document_names import is_row

Holds: TypeAlias = Literal["contains", "made from", "unknown"]

_TEXT_KINDS = ("encoded_shard", "encoded", "mixture", "pack_plan", "packed_shard", "packed")


class FoundFile(NamedTuple):
    """A file of a corpus: where it was, its source and name, and the digest of its content."""

    origin: str
    source: str
    name: str
    digest: str


class Affected(NamedTuple):
    """An artifact that a file went into.

    Attributes:
        reference: `kind/name@label`.
        kind, fingerprint: of the artifact.
        holds: whether it contains text of the file, or was made from something that was learned from it.
        sequences: of a packing, how many sequences have a piece of it; else None.
        why: why it is unknown, or why a corpus has the file but not the row; empty otherwise.
    """

    reference: str
    kind: str
    fingerprint: str
    holds: Holds
    sequences: int | None = None
    why: str = ""


class Impact(NamedTuple):
    """The files that a name means, the row if it has one, and every artifact that they went into."""

    files: Sequence[FoundFile]
    row: int | None
    artifacts: Sequence[Affected]


class _Place(NamedTuple):
    """A stretch of ordinals of a shard, whose text has a digest."""

    source: str
    shard: int
    text: str
    first: int
    end: int


def impact_of(store: Store, name: str) -> Impact:
    """Return every artifact that the files of a name went into.

    Args:
        store: the store.
        name: `PATH`, `GLOB`, `URL` or `DIGEST`, each maybe followed by `:ROW`.

    Raises:
        TracingError: no corpus of the store lists such a file, or such a row of it.
        StoreError: a corpus that lists it cannot be read.
    """
    return store.catalog.asked(lambda ask: _impact_of(store, ask, name))


def _impact_of(store: Store, ask: Ask, name: str) -> Impact:
    wanted, row = name, None
    found = _found(store, ask, wanted)
    head, _, last = name.rpartition(":")
    if not found and head and is_row(last):
        wanted, row = head, int(last)
        found = _found(store, ask, wanted)
    if not found:
        raise TracingError(
            f"{name!r}: no corpus of {store.location} lists such a file; give its path, a glob, its URL or "
            "the digest of its content, and :ROW for one document"
        )
    files = sorted({file for _, its in found for file in its})
    places = {corpus: list(_places(store, corpus, its, row)) for corpus, its in found}
    if not any(places.values()):
        raise TracingError(f"{name!r}: the file has no row {row}; rows count from 0")
    listing = [(corpus, its) for corpus, its in found if places[corpus]]
    of = _parts(ask, [corpus for corpus, _ in listing])
    parts = [(part, its) for corpus, its in listing for part in of[corpus]]
    places |= {part: list(_places(store, part, its, row)) for part, its in parts}
    absent = dict[str, str]()
    if row is not None:
        absent |= dict(_other_sides(store, parts, places))
        absent |= dict(_quarantined(store, listing, of, row))
    every = [place for corpus, its in places.items() for place in its if corpus.fingerprint not in absent]
    rows = _downward(store, ask, [corpus for corpus, _ in listing], every, row is not None)
    lost = _made_from_lost(ask, rows)
    own = _of_packings(rows, every)
    return Impact(files, row, [_affected(store, each, own, lost, absent) for each in rows])


def _downward(
    store: Store, ask: Ask, corpora: Sequence[ArtifactRef], places: Sequence[_Place], is_row: bool
) -> list[dict[str, Any]]:
    """The artifacts that were made of corpora and shards, each with whether it has the text of the places.

    A packing has the digests of the shards' texts that it was made from, too (`texts`).
    """
    begin = [(corpus.kind, corpus.content_digest, False) for corpus in corpora]
    shards = {place.text for place in places}
    texts = [content_id(None, text) for text in shards]
    near = ask(OF_SHARDS, {"numbers": texts})
    for made in (each for each in near if each["text_kind"] is None and each["text"] in shards):
        its = [place for place in places if place.text == made["text"]] if is_row else None
        holds = made["kind"] == "encoded_shard" and (its is None or _keeps(store, _ref(made), its))
        begin.append((made["kind"], made["content_digest"], holds))
    kinds, digests, holdings = map(list, zip(*begin, strict=True))
    numbers = texts + [content_id(kind, digest) for kind, digest, _ in begin]
    asked = {"kinds": kinds, "digests": digests, "holds": holdings, "numbers": numbers}
    return ask(DOWN, {**asked, "shards": sorted(shards)})


def _keeps(store: Store, shard: ArtifactRef, places: Sequence[_Place]) -> bool:
    """Whether an encoded shard has a document of some places; assumed of one that cannot be read."""
    try:
        ordinals = EncodedShard.open(store.place(shard)).ordinals
    except (TaskError, OSError):
        return True
    return any(((ordinals >= place.first) & (ordinals < place.end)).any() for place in places)


def _quarantined(
    store: Store,
    listing: Sequence[tuple[ArtifactRef, Sequence[FoundFile]]],
    parts: Mapping[ArtifactRef, Sequence[ArtifactRef]],
    row: int,
) -> Iterator[tuple[str, str]]:
    """Yield the corpora that quarantined a row of all of their files, and their parts, with the reason."""
    for corpus, files in listing:
        if not store.record(corpus).metrics.get("num_quarantined"):
            continue
        rows = Corpus.open(store.path(corpus)).table("quarantine").to_pylist()
        reasons = {(each["source"], each["file"]): each["reason"] for each in rows if each["row"] == row}
        if all((file.source, file.name) in reasons for file in files):
            for ref in (corpus, *parts[corpus]):
                yield ref.fingerprint, f"quarantined: {reasons[files[0].source, files[0].name]}"


def _parts(ask: Ask, corpora: Sequence[ArtifactRef]) -> dict[ArtifactRef, list[ArtifactRef]]:
    """The parts of corpora that a holdout made."""
    wholes = {corpus.content_digest: corpus for corpus in corpora}
    numbers = [content_id("corpus", digest) for digest in wholes]
    found: dict[ArtifactRef, list[ArtifactRef]] = {corpus: [] for corpus in corpora}
    for row in ask(PARTS, {"numbers": numbers}):
        if row["whole_kind"] == "corpus" and row["whole"] in wholes:
            found[wholes[row["whole"]]].append(_ref(row))
    return found


def _other_sides(
    store: Store,
    parts: Sequence[tuple[ArtifactRef, Sequence[FoundFile]]],
    places: Mapping[ArtifactRef, Sequence[_Place]],
) -> Iterator[tuple[str, str]]:
    """Yield the parts that a row does not belong to, with the side where it is."""
    for ref, _ in parts:
        opened = Corpus.open(store.path(ref))
        held_out = {
            (each["source"], each["shard"], each["ordinal"]) for each in opened.table("held_out").to_pylist()
        }
        sides = {
            "validation" if (place.source, place.shard, place.first) in held_out else "training"
            for place in places[ref]
        }
        if opened.part is not None and sides and opened.part not in sides:
            yield ref.fingerprint, f"it is in the {sides.pop()} part"


def _made_from_lost(ask: Ask, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The artifacts that were made from tokens that are neither there nor removed, with one name of these."""
    if all(row["has_text"] for row in rows if row["kind"] in _TEXT_KINDS[1:]):  # a shard is made from text
        return {}
    return {row["fingerprint"]: row["name"] for row in ask(LOST)}


def _found(store: Store, ask: Ask, wanted: str) -> list[tuple[ArtifactRef, list[FoundFile]]]:
    """The corpora that list a file of this name, each with its files; by content if no path is so."""
    is_digest = len(wanted) == 64 and not set(wanted) - set("0123456789abcdef")
    if not is_digest:
        if by_place := _named(ask, wanted):
            return [(ref, list(_files_of(store, ref, chosen, None))) for ref, chosen in by_place.items()]
        if not os.path.isfile(wanted):  # noqa: PTH113 - a path would raise for a name that is too long
            return []
        wanted = digest_file(Path(wanted))  # it was moved or copied since
    corpora = map(_ref, ask(BY_CONTENT, {"digest": wanted}))
    by_content = ((corpus, list(_files_of(store, corpus, None, wanted))) for corpus in corpora)
    return [(corpus, files) for corpus, files in by_content if files]


def _named(ask: Ask, wanted: str) -> dict[ArtifactRef, set[str]]:
    """The corpora that list files of this path, glob or URL, with the digests of these as inputs."""
    path = wanted if "://" in wanted else str(Path(wanted).expanduser().absolute())
    start = re.split(r"[*?\[]", path, maxsplit=1)[0]
    found: dict[ArtifactRef, set[str]] = {}
    for row in ask(BY_PLACE, {"start": start}):
        if row["origin"] == path or fnmatch.fnmatchcase(row["origin"], path):
            found.setdefault(_ref(row), set()).add(row["digest"])
    return found


def _ref(row: Mapping[str, Any]) -> ArtifactRef:
    return ArtifactRef(
        kind=row.get("kind", "corpus"),
        name=row["name"],
        fingerprint=row["fingerprint"],
        content_digest=row["content_digest"],
    )


def _files_of(
    store: Store, corpus: ArtifactRef, chosen: set[str] | None, digest: str | None
) -> Iterator[FoundFile]:
    """Yield the files of a corpus that are chosen, by their digest as inputs or that of their content."""
    origins = {entry.digest: entry.origin for entry in store.record(corpus).inputs if entry.origin}
    for (source, name), content in Corpus.open(store.path(corpus)).file_digests().items():
        given = origin_digest(source, name, content)
        if content == digest or (chosen is not None and given in chosen):
            yield FoundFile(origins.get(given, ""), source, name, content)


def _places(
    store: Store, corpus: ArtifactRef, files: Sequence[FoundFile], row: int | None
) -> Iterator[_Place]:
    opened = Corpus.open(store.path(corpus))
    shards = opened.table("shards").to_pylist()
    texts = {(each["source"], each["shard"]): each["digest"] for each in shards}
    names = {(file.source, file.name) for file in files}
    for part in opened.table("segments").to_pylist():
        if (part["source"], part["file"]) not in names:
            continue
        first, end = part["first_ordinal"], part["first_ordinal"] + part["num_rows"]
        if row is not None:
            first += row - part["first_row"]
            if not part["first_ordinal"] <= first < end:
                continue
            end = first + 1
        yield _Place(part["source"], part["shard"], texts[part["source"], part["shard"]], first, end)


def _affected(
    store: Store,
    row: Mapping[str, Any],
    own: Mapping[str, Sequence[_Place]],
    lost: Mapping[str, str],
    absent: Mapping[str, str],
) -> Affected:
    reference = f"{row['kind']}/{row['name']}@{row['label']}"
    known = (reference, row["kind"], row["fingerprint"])
    if row["kind"] == "corpus":
        why = absent.get(row["fingerprint"], "")
        return Affected(*known, "made from" if why else "contains", None, why)
    if not row["has_text"] and row["fingerprint"] in lost:
        return Affected(
            *known, "unknown", None, f"{lost[row['fingerprint']]}, from which it was made, is lost"
        )
    if not row["has_text"] or row["kind"] not in _TEXT_KINDS:
        return Affected(*known, "made from")
    if row["kind"] != "packed":
        return Affected(*known, "contains")
    try:
        number = _num_sequences(store.path(_ref(row)), own[row["fingerprint"]])
    except StoreError as error:
        return Affected(*known, "unknown", None, str(error))
    return Affected(*known, "contains" if number else "made from", number)


def _of_packings(rows: Sequence[Mapping[str, Any]], places: Sequence[_Place]) -> dict[str, list[_Place]]:
    """For each packing, the places in shards that it was made from; other versions have others there."""
    return {
        row["fingerprint"]: [place for place in places if place.text in (row["texts"] or ())]
        for row in rows
        if _is_read(row)
    }


def _is_read(row: Mapping[str, Any]) -> bool:
    """Whether an artifact is a packing that may have a piece of the text."""
    return bool(row["kind"] == "packed" and row["has_text"])


def _num_sequences(path: Path, places: Sequence[_Place]) -> int:
    """The number of sequences of a packing that have a piece of these documents."""
    manifest = PackedManifest.open(path)
    at = {source: index for index, source in enumerate(manifest.sources)}
    number = 0
    for shard in manifest.shards:
        columns = PieceRows.open(path, shard.index, manifest).columns
        found = np.zeros(len(columns["source"]), dtype=np.bool_)
        for place in places:
            if place.source in at:
                its = (columns["source"] == at[place.source]) & (columns["shard"] == place.shard)
                found |= its & (columns["ordinal"] >= place.first) & (columns["ordinal"] < place.end)
        number += len(np.unique(columns["sequence"][found]))
    return number
