"""Find every artifact that a file of text, or one document of it, went into, by the records and pieces.

A file is named by its path, a glob, a URL or its content digest; it need not be there any more. A row counts
from 0. From the corpora that list such a file, and the shards that have its rows, the records lead to all
that was made of them:

    contains    its text or tokens: corpora (their account of it), encoded shards, mixtures, packings, exports
    made from   what was counted, learned or measured with it, and what was made of that in turn

The way leads on through artifacts that were removed, and through equal bytes, as in lineage.

Whether a packing has a piece of it, and in how many sequences, is read from the pieces that it lists. One
that cannot be read stays in the answer as unknown, with the reason; and so does what was made from tokens
that are lost, since nobody knows of which text they were.
"""

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokmill.tasks.core.errors import StoreError, TracingError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.packed.layout import PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.shards import PieceRows
from tokmill.tasks.formats.text.resolving import origin_digest
from tokmill.tasks.store.digest import digest_file
from tokmill.tasks.store.lineage_views import ALL_ARTIFACTS, ALL_INPUTS
from tokmill.tasks.store.store import Store
from tokmill.tasks.store.tables import content_id

Holds: TypeAlias = Literal["contains", "made from", "unknown"]

_BY_PLACE = """
    SELECT a.fingerprint, a.name, a.content_digest, i.digest, i.origin
    FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.role = 'files' AND starts_with(i.origin, $start) AND a.stage = 'ingest'
    ORDER BY a.name, a.fingerprint, i.digest
"""
_BY_CONTENT = """
    SELECT a.fingerprint, a.name, a.content_digest FROM artifacts a
    WHERE a.stage = 'ingest' AND fingerprint IN (
        SELECT i.fingerprint FROM inputs i
        WHERE i.role = 'files' AND coalesce(i.file_digest = $digest, true)  -- older records do not have it
    )
    ORDER BY a.name, a.fingerprint
"""
_DOWN = f"""
    WITH RECURSIVE every AS NOT MATERIALIZED ({ALL_INPUTS}),
    shards AS NOT MATERIALIZED (
        SELECT i.content_id AS content, i.fingerprint
        FROM every i WHERE i.input_content_id IN (SELECT unnest($shards::UBIGINT[]))
    ),
    down(content, has_text) AS (
        SELECT unnest($corpora::UBIGINT[]), false
        UNION
        SELECT s.content, a.kind = 'encoded_shard' FROM shards s JOIN ({ALL_ARTIFACTS}) a USING (fingerprint)
        UNION
        SELECT i.content_id,
               d.has_text AND i.role IN ('shards', 'encoded', 'mixture', 'plan', 'packed', 'shard')
        FROM down d JOIN every i ON i.input_content_id = d.content
    )
    SELECT a.kind, a.name, a.label, a.fingerprint, a.content_digest, bool_or(d.has_text) AS has_text
    FROM down d JOIN artifacts a ON a.content_id = d.content
    GROUP BY ALL ORDER BY a.kind, a.name, a.label, a.fingerprint
"""  # noqa: S608 - constants
_LOST = f"""
    WITH RECURSIVE every AS NOT MATERIALIZED ({ALL_INPUTS}),
    down(content, name) AS (
        SELECT DISTINCT input_content_id, input_kind || '/' || input_name FROM inputs
        WHERE input_kind IN ('encoded_shard', 'encoded', 'mixture', 'pack_plan', 'packed_shard', 'packed')
          AND input_content_id NOT IN (SELECT content_id FROM ({ALL_ARTIFACTS}))
        UNION
        SELECT i.content_id, d.name FROM down d JOIN every i ON i.input_content_id = d.content
        WHERE i.role IN ('shards', 'encoded', 'mixture', 'plan', 'packed', 'shard')
    )
    SELECT a.fingerprint, min(d.name) AS name FROM down d JOIN artifacts a ON a.content_id = d.content
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
    """An artifact that a file went into.

    Attributes:
        reference: `kind/name@label`.
        kind, fingerprint: of the artifact.
        holds: whether it contains text of the file, or was made from something that was learned from it.
        sequences: of a packing, how many sequences have a piece of it; else None.
        why: why it is unknown; empty otherwise.
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
    """A stretch of ordinals of a shard."""

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
    wanted, row = name, None
    found = _found(store, wanted)
    head, _, last = name.rpartition(":")
    if not found and head and last.isascii() and last.isdigit():
        wanted, row = head, int(last)
        found = _found(store, wanted)
    if not found:
        raise TracingError(
            f"{name!r}: no corpus of {store.location} lists such a file; give its path, a glob, its URL or "
            "the digest of its content, and :ROW for one document"
        )
    files = sorted({file for _, its in found for file in its})
    places = {corpus: list(_places(store, corpus, its, row)) for corpus, its in found}
    if not any(places.values()):
        raise TracingError(f"{name!r}: the file has no row {row}; rows count from 0")
    every = [place for its in places.values() for place in its]
    corpora = [content_id(corpus.kind, corpus.content_digest) for corpus, its in places.items() if its]
    shards = sorted({content_id(None, place.text) for place in every})
    rows = store.catalog.query(_DOWN, {"corpora": corpora, "shards": shards})
    lost = _made_from_lost(store, rows)
    return Impact(files, row, [_affected(store, each, every, lost) for each in rows])


def _made_from_lost(store: Store, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The artifacts that were made from tokens that are neither there nor removed, with one name of these."""
    if all(row["has_text"] for row in rows if row["kind"] in _TEXT_KINDS[1:]):  # a shard is made from text
        return {}
    return {row["fingerprint"]: row["name"] for row in store.catalog.query(_LOST)}


def _found(store: Store, wanted: str) -> list[tuple[ArtifactRef, list[FoundFile]]]:
    """The corpora that list a file of this name, each with its files; by content if no path is so."""
    is_digest = len(wanted) == 64 and not set(wanted) - set("0123456789abcdef")
    if not is_digest:
        if by_place := _named(store, wanted):
            return [(ref, list(_files_of(store, ref, chosen, None))) for ref, chosen in by_place.items()]
        if not Path(wanted).is_file():
            return []
        wanted = digest_file(Path(wanted))  # it was moved or copied since
    corpora = map(_ref, store.catalog.query(_BY_CONTENT, {"digest": wanted}))
    by_content = ((corpus, list(_files_of(store, corpus, None, wanted))) for corpus in corpora)
    return [(corpus, files) for corpus, files in by_content if files]


def _named(store: Store, wanted: str) -> dict[ArtifactRef, set[str]]:
    """The corpora that list files of this path, glob or URL, with the digests of these as inputs."""
    path = wanted if "://" in wanted else str(Path(wanted).expanduser().absolute())
    start = re.split(r"[*?\[]", path, maxsplit=1)[0]
    found: dict[ArtifactRef, set[str]] = {}
    for row in store.catalog.query(_BY_PLACE, {"start": start}):
        if row["origin"] == path or fnmatch.fnmatchcase(row["origin"], path):
            found.setdefault(_ref(row), set()).add(row["digest"])
    return found


def _ref(row: Mapping[str, Any]) -> ArtifactRef:
    return ArtifactRef(
        kind="corpus",
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
    digests = {(each["source"], each["shard"]): each["digest"] for each in opened.table("shards").to_pylist()}
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
        yield _Place(part["source"], part["shard"], digests[part["source"], part["shard"]], first, end)


def _affected(
    store: Store, row: Mapping[str, Any], places: Sequence[_Place], lost: Mapping[str, str]
) -> Affected:
    reference = f"{row['kind']}/{row['name']}@{row['label']}"
    known = (reference, row["kind"], row["fingerprint"])
    if row["kind"] == "corpus":
        return Affected(*known, "contains")
    if not row["has_text"] and row["fingerprint"] in lost:
        return Affected(
            *known, "unknown", None, f"{lost[row['fingerprint']]}, from which it was made, is lost"
        )
    if not row["has_text"] or row["kind"] not in _TEXT_KINDS:
        return Affected(*known, "made from")
    if row["kind"] != "packed":
        return Affected(*known, "contains")
    ref = ArtifactRef(
        kind=row["kind"],
        name=row["name"],
        fingerprint=row["fingerprint"],
        content_digest=row["content_digest"],
    )
    try:
        number = _num_sequences(store.path(ref), places)
    except StoreError as error:
        return Affected(*known, "unknown", None, str(error))
    return Affected(*known, "contains" if number else "made from", number)


def _num_sequences(path: Path, places: Sequence[_Place]) -> int:
    """The number of sequences of a packing that have a piece of these documents."""
    manifest = PackedManifest.open(path)
    at = {source: index for index, source in enumerate(manifest.sources)}
    number = 0
    for shard in manifest.shards:
        columns = PieceRows.open(ShardFiles(path, shard.index), manifest).columns
        found = np.zeros(len(columns["source"]), dtype=np.bool_)
        for place in places:
            if place.source in at:
                its = (columns["source"] == at[place.source]) & (columns["shard"] == place.shard)
                found |= its & (columns["ordinal"] >= place.first) & (columns["ordinal"] < place.end)
        number += len(np.unique(columns["sequence"][found]))
    return number
