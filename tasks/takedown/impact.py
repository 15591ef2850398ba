"""Find every artifact that a file of text, or one row of it, went into, by the records and pieces.

From the corpora that list it, records lead to all that contains its text or was made from it. What cannot be
read, or was made from tokens that are lost, is unknown, with the reason. Queries find contents by their
numbers (`tasks.store.tables`); kinds and digests decide.
"""

import fnmatch
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokmill.tasks.core.errors import StoreError, TaskError, TracingError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.store.digest import digest_file
from tokmill.tasks.store.rows import content_id
from tokmill.tasks.store.snapshot import Ask, Row
from tokmill.tasks.store.store import Store
from tokmill.tasks.store.tables import ALL_ARTIFACTS, ALL_INPUTS, OWNERS, near_by_number
from tokmill.tasks.tracing.names import is_row
from tokmill.tasks.tracing.origins import file_origins
from tokmill.tasks.tracing.places import Place, encoded_places, pieces_at, places_in

Holds: TypeAlias = Literal["contains", "made from", "unknown"]

_BY_PLACE = """
    SELECT DISTINCT a.name, a.fingerprint, a.content_digest FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.role = 'files' AND a.stage = 'ingest' AND (i.origin = $path OR i.origin GLOB $path)
    ORDER BY a.name, a.fingerprint
"""
_BY_CONTENT = """
    SELECT DISTINCT a.name, a.fingerprint, a.content_digest FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.role = 'files' AND a.stage = 'ingest' AND i.file_digest = $digest
    ORDER BY a.name, a.fingerprint
"""
_DOWN = f"""
    WITH RECURSIVE {near_by_number("SELECT unnest($numbers::UBIGINT[])")},
    down(kind, digest, has_text) AS (
        SELECT unnest($kinds::VARCHAR[]), unnest($digests::VARCHAR[]), unnest($holds::BOOLEAN[])
        UNION
        SELECT e.kind, e.content_digest,
               d.has_text AND e.role IN ('shards', 'encoded', 'mixture', 'plan', 'packed', 'shard')
        FROM down d JOIN edges e ON e.input_kind = d.kind AND e.digest = d.digest
    ),
    found AS (SELECT * FROM artifacts WHERE content_id IN (FROM near)),
    made AS MATERIALIZED (
        SELECT a.kind, a.name, a.label, a.fingerprint, a.content_digest, bool_or(d.has_text) AS has_text
        FROM down d JOIN found a ON a.kind = d.kind AND a.content_digest = d.digest
        GROUP BY ALL
    ),
    up(packed, kind, digest) AS (
        SELECT content_digest, kind, content_digest FROM made WHERE kind = 'packed' AND has_text
        UNION
        SELECT u.packed, e.input_kind, e.digest
        FROM up u JOIN edges e ON e.kind = u.kind AND e.content_digest = u.digest
        WHERE e.role IN ('shards', 'encoded', 'mixture', 'plan', 'packed')
    ),
    own AS (
        SELECT u.packed, list(DISTINCT e.digest) AS texts
        FROM up u JOIN edges e ON e.kind = u.kind AND e.content_digest = u.digest
        WHERE e.role = 'shard' AND e.input_kind IS NULL AND e.digest IN (SELECT unnest($shards::VARCHAR[]))
        GROUP BY u.packed
    )
    SELECT m.*, own.texts FROM made m LEFT JOIN own ON m.kind = 'packed' AND own.packed = m.content_digest
    ORDER BY m.kind, m.name, m.label, m.fingerprint
"""  # noqa: S608 - constants
_OF_SHARDS = f"""
    WITH every AS NOT MATERIALIZED ({ALL_INPUTS})
    SELECT DISTINCT i.input_kind AS text_kind, i.digest AS text,
           o.kind, o.name, o.fingerprint, o.content_digest
    FROM every i JOIN ({OWNERS}) o USING (fingerprint, status)
    WHERE i.input_content_id IN (SELECT unnest($numbers::UBIGINT[]))
"""  # noqa: S608 - constants
_PARTS = """
    SELECT i.digest AS whole, a.name, a.fingerprint, a.content_digest
    FROM artifacts a JOIN inputs i USING (fingerprint)
    WHERE a.kind = 'corpus' AND i.role = 'corpus' ORDER BY a.name, a.fingerprint
"""
_LOST = f"""
    WITH RECURSIVE lost AS MATERIALIZED (
        SELECT DISTINCT i.input_content_id AS content, i.input_kind AS kind, i.digest,
               i.input_kind || '/' || i.input_name AS name
        FROM inputs i ANTI JOIN ({ALL_ARTIFACTS}) a ON a.kind = i.input_kind AND a.content_digest = i.digest
        WHERE i.input_kind IN ('encoded_shard', 'encoded', 'mixture', 'pack_plan', 'packed_shard', 'packed')
    ),
    {near_by_number("SELECT content FROM lost")},
    down(kind, digest, name) AS (
        SELECT kind, digest, name FROM lost
        UNION
        SELECT e.kind, e.content_digest, d.name
        FROM down d JOIN edges e ON e.input_kind = d.kind AND e.digest = d.digest
        WHERE e.role IN ('shards', 'encoded', 'mixture', 'plan', 'packed', 'shard')
    ),
    found AS (SELECT * FROM artifacts WHERE content_id IN (FROM near))
    SELECT a.fingerprint, min(d.name) AS name
    FROM down d JOIN found a ON a.kind = d.kind AND a.content_digest = d.digest
    GROUP BY a.fingerprint
"""  # noqa: S608 - constants
_TEXT_KINDS = ("encoded_shard", "encoded", "mixture", "pack_plan", "packed_shard", "packed")


class FoundFile(NamedTuple):
    """A file of a corpus: where it was, its source and name, and the digest of its content."""

    origin: str
    source: str
    name: str
    digest: str


class Affected(NamedTuple):
    """An artifact that a file went into."""

    reference: str  # `kind/name@label`
    kind: str
    fingerprint: str
    holds: Holds  # whether it contains text of the file, or was made from something learned from it
    sequences: int | None = None  # of a packing, how many sequences have a piece of it
    why: str = ""  # why it is unknown, or why a corpus has the file but not the row


class Impact(NamedTuple):
    """The files that a name means, the row if it has one, and every artifact that they went into."""

    files: Sequence[FoundFile]
    row: int | None
    artifacts: Sequence[Affected]


class _Listing(NamedTuple):
    """A corpus that lists the files, or a part of one, with the reason why it lacks the row, if it does."""

    corpus: ArtifactRef
    files: Sequence[FoundFile]
    places: Sequence[Place]
    absent: str = ""


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
    listings = [_listing(store, corpus, files, row) for corpus, files in found]
    wholes = [listing for listing in listings if listing.places]
    if not wholes:
        raise TracingError(f"{name!r}: the file has no row {row}; rows count from 0")
    by_content = {listing.corpus.content_digest: listing for listing in wholes}
    listings = wholes + [
        _listing(store, _ref(part), by_content[part["whole"]].files, row, by_content[part["whole"]])
        for part in ask(_PARTS)
        if part["whole"] in by_content
    ]
    absent = {listing.corpus.fingerprint: listing.absent for listing in listings}
    places = [place for listing in listings if not listing.absent for place in listing.places]
    made = _downward(store, ask, [whole.corpus for whole in wholes], places, row is not None)
    lost = {}  # what was made from tokens that are neither there nor removed, with one name of these
    if not all(each["has_text"] for each in made if each["kind"] in _TEXT_KINDS[1:]):
        lost = {each["fingerprint"]: each["name"] for each in ask(_LOST)}
    files = sorted({file for _, its in found for file in its})
    return Impact(files, row, [_affected(store, each, places, lost, absent) for each in made])


def _listing(
    store: Store,
    corpus: ArtifactRef,
    files: Sequence[FoundFile],
    row: int | None,
    whole: _Listing | None = None,
) -> _Listing:
    opened = Corpus.open(store.path(corpus))
    rows = {(file.source, file.name): None if row is None else [row] for file in files}
    places = list(places_in(opened, rows))
    if row is None:
        return _Listing(corpus, files, places)
    if whole is not None and whole.absent:
        return _Listing(corpus, files, places, whole.absent)
    if whole is None:
        quarantine = opened.table("quarantine").to_pylist()
        reasons = {
            (each["source"], each["file"]): each["reason"] for each in quarantine if each["row"] == row
        }
        absent = f"quarantined: {reasons[min(rows)]}" if rows.keys() <= reasons.keys() else ""
        return _Listing(corpus, files, places, absent)
    held_out = {tuple(each.values()) for each in opened.table("held_out").to_pylist()}
    sides = {(place.source, place.shard, place.first) in held_out for place in places}
    if opened.part is None or not sides or (opened.part == "validation") in sides:
        return _Listing(corpus, files, places)
    other = "training" if opened.part == "validation" else "validation"
    return _Listing(corpus, files, places, f"it is in the {other} part")


def _downward(
    store: Store, ask: Ask, corpora: Sequence[ArtifactRef], places: Sequence[Place], is_row: bool
) -> list[dict[str, Any]]:
    """The artifacts that were made of corpora and shards, each with whether it has the text of the places.

    A packing has the digests of the shards' texts that it was made from, too (`texts`).
    """
    begin = [(corpus.kind, corpus.content_digest, False) for corpus in corpora]
    shards = {place.text for place in places}
    texts = [content_id(None, text) for text in shards]
    near = ask(_OF_SHARDS, {"numbers": texts})
    for made in (each for each in near if each["text_kind"] is None and each["text"] in shards):
        its = [place for place in places if place.text == made["text"]] if is_row else None
        holds = made["kind"] == "encoded_shard" and (its is None or _keeps(store, _ref(made), its))
        begin.append((made["kind"], made["content_digest"], holds))
    kinds, digests, holdings = map(list, zip(*begin, strict=True))
    numbers = texts + [content_id(kind, digest) for kind, digest, _ in begin]
    asked = {"kinds": kinds, "digests": digests, "holds": holdings, "numbers": numbers}
    return ask(_DOWN, {**asked, "shards": sorted(shards)})


def _keeps(store: Store, shard: ArtifactRef, places: Sequence[Place]) -> bool:
    """Whether an encoded shard has a document of some places; assumed of one that cannot be read."""
    try:
        return bool(encoded_places(EncodedShard.open(store.place(shard)), places))
    except (TaskError, OSError):
        return True


def _found(store: Store, ask: Ask, wanted: str) -> list[tuple[ArtifactRef, list[FoundFile]]]:
    """The corpora that list a file of this name, each with its files; by content if no path is so."""
    if len(wanted) == 64 and not set(wanted) - set("0123456789abcdef"):
        return _listed(store, ask(_BY_CONTENT, {"digest": wanted}), lambda file: file.digest == wanted)
    path = wanted if "://" in wanted else str(Path(wanted).expanduser().absolute())
    by_place = _listed(
        store,
        ask(_BY_PLACE, {"path": path}),
        lambda file: file.origin == path or fnmatch.fnmatchcase(file.origin, path),
    )
    if by_place or not os.path.isfile(wanted):  # noqa: PTH113 - a path would raise for a name that is too long
        return by_place
    return _found(store, ask, digest_file(Path(wanted)))  # it was moved or copied since


def _listed(
    store: Store, corpora: Iterable[Row], matches: Callable[[FoundFile], bool]
) -> list[tuple[ArtifactRef, list[FoundFile]]]:
    found = []
    for corpus in map(_ref, corpora):
        opened = Corpus.open(store.path(corpus))
        origins = file_origins(store.record(corpus), opened)
        every = (
            FoundFile(origins.get(key, ""), *key, digest) for key, digest in opened.file_digests().items()
        )
        if files := list(filter(matches, every)):
            found.append((corpus, files))
    return found


def _ref(row: Row) -> ArtifactRef:
    return ArtifactRef(
        kind=row.get("kind", "corpus"),
        name=row["name"],
        fingerprint=row["fingerprint"],
        content_digest=row["content_digest"],
    )


def _affected(
    store: Store,
    row: Row,
    places: Sequence[Place],
    lost: Mapping[str, str],
    absent: Mapping[str, str],
) -> Affected:
    known = (f"{row['kind']}/{row['name']}@{row['label']}", row["kind"], row["fingerprint"])
    if row["kind"] == "corpus":
        why = absent.get(row["fingerprint"], "")
        return Affected(*known, "made from" if why else "contains", None, why)
    if not row["has_text"] and row["fingerprint"] in lost:
        why = f"{lost[row['fingerprint']]}, from which it was made, is lost"
        return Affected(*known, "unknown", None, why)
    if not row["has_text"] or row["kind"] not in _TEXT_KINDS:
        return Affected(*known, "made from")
    if row["kind"] != "packed":
        return Affected(*known, "contains")
    own = row["texts"] or ()  # other versions have other shards in the same places
    try:
        found = pieces_at(store.path(_ref(row)), [place for place in places if place.text in own])
        number = sum(len(np.unique(pieces["sequence"])) for pieces in found)
    except StoreError as error:
        return Affected(*known, "unknown", None, str(error))
    return Affected(*known, "contains" if number else "made from", number)
