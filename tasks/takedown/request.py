"""Request a takedown by document names, and report the result.

Either padding takes the place of the documents' pieces, or the mixture is packed again without them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokmill.tasks.card.stage import CARD
from tokmill.tasks.core.errors import StoreError, TracingError
from tokmill.tasks.core.faults import read_named
from tokmill.tasks.core.stage import Account, ArtifactRef, External, Input, Inputs, Request
from tokmill.tasks.formats.packed.manifest import TakedownManifest, TakenDocument
from tokmill.tasks.formats.packed.pieces import PackingPlan
from tokmill.tasks.packing.stage import PACK, PACK_PLAN, PACK_SHARD
from tokmill.tasks.store.build import Realized
from tokmill.tasks.store.fingerprint import canonical_json, digest_bytes
from tokmill.tasks.store.record import Record
from tokmill.tasks.store.remote import PulledPath
from tokmill.tasks.store.verify import file_damages
from tokmill.tasks.takedown.holders import Holder, holders_of
from tokmill.tasks.takedown.stage import EXCLUDE, TAKEDOWN, TakedownParams
from tokmill.tasks.tracing.document import why_absent
from tokmill.tasks.tracing.names import FoundDocument, find_documents
from tokmill.tasks.tracing.origins import Origins
from tokmill.tasks.tracing.places import Place, pieces_at
from tokmill.tokenizer.core.text import split_lines

_EARLIER_MIXTURES, _EARLIER_PACKINGS = "earlier_mixtures", "earlier_packings"
_CARDS = """
    SELECT a.fingerprint FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE a.stage = 'card' AND i.role = 'packed' AND i.input_fingerprint = $fingerprint
    ORDER BY a.stage_version DESC, a.ended DESC
"""


@dataclass(frozen=True)
class TakenDown:
    """The result of a takedown."""

    record: Record | None  # the record of the new version; None if no sequence had a piece of the documents
    accounts: Sequence[Account]  # documents and tokens kept and taken down, by source
    made: bool  # whether the new version was made now; False if the store already had it
    documents: list[FoundDocument]  # the documents that were taken down
    absent: list[tuple[FoundDocument, str]]
    """The documents without a piece in any sequence, each with the reason."""
    holders: list[Holder]  # every artifact of the store that still holds one of the documents, or may
    card: Record | None = None
    """The card of the new version; None if the old version has none, or an input of the card was removed."""


def read_names(file: Path) -> list[str]:
    """Read a list of names, one per line; blank lines and lines that begin with # are ignored.

    Blanks at the ends of a line belong to the name, as an id may have some.
    """
    try:
        lines = split_lines(read_named(file))
    except (OSError, UnicodeDecodeError) as error:
        raise TracingError(
            f"{file}: cannot be read ({error}); give a UTF-8 file with one document per line"
        ) from error
    names = [line for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise TracingError(f"{file}: it lists no document; write SOURCE:ID or SOURCE:FILE:ROW, one per line")
    return names


def take_down(
    origins: Origins, names: Iterable[str], *, repacked: bool = False, reason: str = ""
) -> TakenDown:
    """Publish a version of a packed artifact without the documents of these names.

    Args:
        origins: the origins of the packed artifact.
        names: the names of the documents.
        repacked: whether to pack the mixture again without them; otherwise padding takes their place.
        reason: why, for the new version's record, and for what is left of the old one when it is removed.

    Raises:
        TracingError: a name matches no document; nothing is published.
        StoreError: the artifact, or one that it was made from, is missing or damaged.
        SourceError: ids must be looked up, and a file is missing or has changed since it was ingested.
    """
    found = find_documents(origins, names)  # each under its first name
    documents = list({one.place: one for one in reversed(found)}.values())[::-1]
    held = _with_pieces(origins, documents)
    present = [one for one in documents if one.place in held]
    absent = [(one, why_absent(origins, one)) for one in documents if one.place not in held]
    if not present:
        return TakenDown(None, [], False, [], absent, holders_of(origins, documents))
    _check_sound(origins)
    taken = [TakenDocument(**one._asdict()) for one in present]
    if repacked:
        realized = _repack(origins, taken, reason)
    else:
        inputs: Inputs = {"packed": origins.packed.ref, "documents": listed(taken)}
        request = Request(TAKEDOWN, origins.packed.name, TakedownParams(reason=reason), inputs)
        realized = origins.store.realize(request)
    record = origins.store.record(realized.ref)
    made_by = Origins.of(origins.store, realized.ref).ancestor("mixture") if repacked else record
    card = _card_of(origins, realized.ref, made_by.ref if repacked else None)
    holders = holders_of(origins, documents)
    return TakenDown(record, made_by.accounts, not realized.cached, present, absent, holders, card)


def _with_pieces(origins: Origins, documents: Sequence[FoundDocument]) -> set[Place]:
    sources, held = origins.reader.manifest.sources, set[Place]()
    for pieces in pieces_at(origins.path, [one.place for one in documents]):
        columns = (pieces[name].tolist() for name in ("source", "shard", "ordinal"))
        for source, shard, ordinal in set(zip(*columns, strict=True)):
            held.add(Place(sources[source], shard, ordinal, ordinal + 1))
    return held


def _card_of(origins: Origins, packed: ArtifactRef, mixture: ArtifactRef | None) -> Record | None:
    """Publish a card for the new version, in the same way as the old version's."""
    made = origins.store.catalog.query(_CARDS, {"fingerprint": origins.packed.fingerprint})
    if not made:
        return None
    old = origins.store.read("card", made[0]["fingerprint"])
    inputs: dict[str, Input | Sequence[Input]] = {
        entry.role: entry.ref for entry in old.inputs if entry.ref is not None and entry.position is None
    }
    before = {role: old.refs(role) for role in (_EARLIER_MIXTURES, _EARLIER_PACKINGS)}
    inputs["packed"] = packed
    if mixture is None:
        before[_EARLIER_PACKINGS].append(origins.packed.ref)
    else:
        inputs["mixture"] = mixture
        before = {_EARLIER_MIXTURES: [*before[_EARLIER_MIXTURES], origins.ancestor("mixture").ref]}
    inputs |= {role: refs for role, refs in before.items() if refs}
    used = [ref for given in inputs.values() for ref in (given if isinstance(given, Sequence) else [given])]
    if not all(origins.store.holds(ref) for ref in used if isinstance(ref, ArtifactRef)):
        return None
    card = origins.store.realize(Request(CARD, packed.name, CARD.params(**old.params), inputs))
    return origins.store.record(card.ref)


def _check_sound(origins: Origins) -> None:
    """Reject a packed artifact whose files differ from what was published.

    Files in a remote are compared when they are pulled.
    """
    if isinstance(origins.path, PulledPath):
        return
    for name, message in file_damages(origins.path, origins.packed, full=True):
        raise StoreError(
            f"{origins.packed.reference}: {name} {message}; make it again before taking documents down"
        )


def _repack(origins: Origins, documents: Sequence[TakenDocument], reason: str) -> Realized:
    """Publish a packing of the mixture without the documents, and without those taken down earlier."""
    original = next((one for one in origins.versions() if one.refs("plan")), None)
    if original is None:
        raise TracingError(
            f"{origins.packed.reference} was not made from a packing plan, so it cannot be packed again"
        )
    plan, name, realize = origins.input_record(original, "plan"), origins.packed.name, origins.store.realize
    tokens: Inputs = {"encoded": plan.refs("encoded")[0], "shards": plan.refs("shards")}
    mixture = origins.input_record(plan, "mixture").ref
    without = listed(_with_earlier(origins, documents))
    left = realize(
        Request(
            EXCLUDE, name, TakedownParams(reason=reason), {**tokens, "mixture": mixture, "documents": without}
        )
    )
    options = PACK_PLAN.params(**plan.params)
    planned = realize(Request(PACK_PLAN, name, options, {**tokens, "mixture": left.ref})).ref
    written, of_shard = PACK.params(**original.params), {**tokens, "plan": planned}
    parts = [
        realize(Request(PACK_SHARD, f"{name}.shard/{index}", written.shard_params(index), of_shard)).ref
        for index in range(PackingPlan.open(origins.store.place(planned)).num_shards)
    ]
    return realize(Request(PACK, name, written, {"plan": planned, "shards": parts}))


def listed(documents: Sequence[TakenDocument]) -> External:
    """Return documents as the input of a stage; the digest depends on their order."""
    value = [document.model_dump() for document in documents]
    return External(digest=digest_bytes(canonical_json(value)), value=value, about=value)


def _with_earlier(origins: Origins, documents: Sequence[TakenDocument]) -> list[TakenDocument]:
    taken = list(documents)
    for version in origins.versions():
        takedown = TakedownManifest.found(origins.store.place(version.ref))
        taken += takedown.documents if takedown else ()
    places = {(one.source, one.shard, one.ordinal): one for one in taken}
    return [places[key] for key in sorted(places)]
