"""Asking for a takedown: from names to a request, and what came of it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tasks.errors import StoreError, TracingError
from tasks.formats.takedown import TakenDocument
from tasks.stage import Account, Inputs, Request
from tasks.store.integrity import file_damages
from tasks.store.record import Record
from tasks.takedown import TAKEDOWN, TakedownParams
from tasks.tracing.document import why_absent
from tasks.tracing.naming import FoundDocument, find_documents
from tasks.tracing.origins import Origins
from tasks.tracing.pieces import pieces_of
from tasks.tracing.repacking import listed, repack


@dataclass(frozen=True)
class TakenDown:
    """What a takedown came to.

    Attributes:
        record: of the new version; None where no sequence had a piece of the documents.
        accounts: of the documents and tokens that were left and taken down, by source.
        made: whether it was made now, and not found.
        documents: those that were taken down.
        absent: those of which no sequence had a piece, each with the reason.
    """

    record: Record | None
    accounts: Sequence[Account]
    made: bool
    documents: list[FoundDocument]
    absent: list[tuple[FoundDocument, str]]


def read_names(file: Path) -> list[str]:
    """The names in a list: one a line; blank lines and those that begin with # are none.

    Raises:
        TracingError: the file cannot be read as UTF-8, or has no name.
    """
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise TracingError(
            f"{file}: cannot be read ({error}); give a UTF-8 file with a document a line"
        ) from error
    names = [line for line in lines if line and not line.startswith("#")]
    if not names:
        raise TracingError(
            f"{file}: there is no document in it; write SOURCE:ID or SOURCE:FILE:ROW, one a line"
        )
    return names


def take_down(origins: Origins, names: Iterable[str], *, repacked: bool = False) -> TakenDown:
    """Publish a version of a packed artifact without the documents of these names.

    Args:
        origins: of the packed artifact.
        names: what the documents are called.
        repacked: whether the mixture is packed again without them; else padding takes their place.

    Raises:
        TracingError: nothing is called by one of the names; nothing is published.
        StoreError: the artifact, or one that it goes back to, is missing or damaged.
        SourceError: ids have to be looked for, and a file is gone or no longer what was ingested.
    """
    documents = _once(find_documents(origins, names))
    sources = origins.reader.manifest.sources
    held = {(sources[row["source"]], row["shard"], row["ordinal"]) for row in pieces_of(origins, documents)}
    present = [one for one in documents if (one.source, one.shard, one.ordinal) in held]
    absent = [(one, why_absent(origins, one)) for one in documents if one not in present]
    if not present:
        return TakenDown(None, [], False, [], absent)
    _check_sound(origins)
    realized = (
        repack(origins, _taken(present)) if repacked else origins.store.realize(_request(origins, present))
    )
    record = origins.store.record(realized.ref)
    made_by = Origins.of(origins.store, realized.ref).ancestor("mixture") if repacked else record
    return TakenDown(record, made_by.accounts, not realized.cached, present, absent)


def _once(documents: list[FoundDocument]) -> list[FoundDocument]:
    """Each document under the first of its names."""
    return list({(one.source, one.shard, one.ordinal): one for one in reversed(documents)}.values())[::-1]


def _check_sound(origins: Origins) -> None:
    """Refuse to make a new version of what is not what was published."""
    for name, message in file_damages(origins.path, origins.packed, full=True):
        raise StoreError(
            f"{origins.packed.reference}: {name} {message}; have it made again before anything is taken down"
        )


def _request(origins: Origins, documents: list[FoundDocument]) -> Request:
    inputs: Inputs = {"packed": origins.packed.ref, "documents": listed(_taken(documents))}
    return Request(TAKEDOWN, origins.packed.name, TakedownParams(), inputs)


def _taken(documents: list[FoundDocument]) -> list[TakenDocument]:
    return [TakenDocument(**asdict(document)) for document in documents]
