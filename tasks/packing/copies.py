"""Plan the copying of pieces: runs of an encoded shard's tokens, and tokens to add between them.

A piece in the order of its document is one run. A rearranged piece (`tasks.fim.tokens`) has up to five: the
token that begins the document, two or three parts of its text, and the token that ends it.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.fim.tokens import FIM_TOKENS, SPM, DocumentKeys, choose_cuts
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.packed.figures import FimTokens, Packing
from tokmill.tasks.formats.packed.plan import PieceTable


@dataclass(frozen=True)
class Body:
    """The places of pieces in the encoded shard; all arrays int64 [p].

    Attributes:
        begin: index of the piece's first token.
        length: number of its tokens.
        head: 1 where the piece begins with the token that begins the document, else 0.
        tail: 1 where the piece ends with the token that ends the document, else 0.
    """

    begin: NDArray[np.int64]
    length: NDArray[np.int64]
    head: NDArray[np.int64]
    tail: NDArray[np.int64]

    @classmethod
    def of(cls, packing: Packing, pieces: PieceTable, shard: EncodedShard) -> Self:
        """Locate the pieces of one shard.

        Raises:
            PackingError: a document is not in the shard, or has fewer tokens than its piece.
        """
        document = pieces.document.astype(np.int64)
        start = pieces.document_start.astype(np.int64)
        length = pieces.length.astype(np.int64) - FIM_TOKENS * (pieces.fim > 0)
        there = document < shard.num_documents
        found = np.where(there, document, 0)
        lengths = np.diff(shard.offsets)[found] if shard.num_documents else np.zeros_like(start)
        wrong = np.flatnonzero(~there | (start + length > lengths))
        if len(wrong):
            raise PackingError(
                f"pack: the plan uses {int((start + length)[wrong[0]])} tokens of document "
                f"{int(document[wrong[0]])}, which the encoded shard {shard.path} does not have; mix and "
                "pack the encoding that the plan was made from"
            )
        head = (start == 0) & (packing.begin_of_document_id is not None)
        tail = (start + length == lengths) & (packing.end_of_document_id is not None)
        return cls(shard.offsets[document] + start, length, head.astype(np.int64), tail.astype(np.int64))


@dataclass(frozen=True)
class Copies:
    """Runs of tokens to copy, int64 [c], and single tokens to add, int64 [t].

    Attributes:
        begins: index in the encoded shard at which each run begins.
        lengths: tokens of each run; may be 0.
        places: destination of each run.
        token_places: destination of each added token.
        token_ids: id of each added token.
    """

    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]
    places: NDArray[np.int64]
    token_places: NDArray[np.int64]
    token_ids: NDArray[np.int64]


def copies_of(packing: Packing, body: Body, pieces: PieceTable, places: NDArray[np.int64]) -> Copies:
    """The runs and tokens for these pieces, whose destinations are `places`, int64 [p]."""
    rearranged = np.flatnonzero(pieces.fim)
    if packing.fim is None or not len(rearranged):
        nothing = np.empty(0, dtype=np.int64)
        return Copies(body.begin, body.length, places, nothing, nothing)
    plain = np.flatnonzero(pieces.fim == 0)
    moved = _rearranged(packing.fim, body, pieces, places, rearranged)
    return Copies(
        np.concatenate([body.begin[plain], moved.begins]),
        np.concatenate([body.length[plain], moved.lengths]),
        np.concatenate([places[plain], moved.places]),
        moved.token_places,
        moved.token_ids,
    )


def _rearranged(
    fim: FimTokens, body: Body, pieces: PieceTable, places: NDArray[np.int64], chosen: NDArray[np.intp]
) -> Copies:
    """The runs and tokens of the pieces `chosen`, in the order that `tasks.fim.tokens` defines."""
    head, tail = body.head[chosen], body.tail[chosen]
    begin = body.begin[chosen] + head
    text = body.length[chosen] - head - tail
    keys = DocumentKeys(*(getattr(pieces, name)[chosen] for name in ("source", "shard", "document", "epoch")))
    a, b = choose_cuts(keys, pieces.document_start[chosen], text, fim.seed)
    spm = pieces.fim[chosen] == SPM
    place = places[chosen] + head
    prefix_place = np.where(spm, place + 3 + text - b, place + 1)
    suffix_place = np.where(spm, place + 2, place + 2 + a)
    middle_place = np.where(spm, prefix_place + a, place + 3 + a + text - b)
    runs = [
        (begin - head, head, places[chosen]),
        (begin, a, prefix_place),
        (begin + b, text - b, suffix_place),
        (begin + a, b - a, middle_place),
        (begin + text, tail, place + 3 + text),
    ]
    begins, lengths, goals = (np.concatenate(column) for column in zip(*runs, strict=True))
    middle_token = np.where(spm, prefix_place - 1, middle_place - 1)
    token_places = np.concatenate([place, suffix_place - 1, middle_token])
    token_ids = np.repeat([fim.prefix_id, fim.suffix_id, fim.middle_id], len(chosen))
    return Copies(begins, lengths, goals, token_places, token_ids)
